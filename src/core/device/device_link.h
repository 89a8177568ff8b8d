#pragma once
#include <array>
#include <cstdint>
#include <span>

#include "ds_plugin.h"

namespace ds {

class DeviceQueue;

// An id that all ranks of a group pass when they open their links, so that the library joins them.
using LinkId = std::array<uint8_t, 128>;

// One rank's membership in a group of ranks with one device each, whose queues exchange bytes
// without going through host memory. Like a transport, a link only moves bytes; DeviceQueue::sum()
// adds them up. All ranks make the same calls in the same order, on one thread at a time, except
// for abort().
class DeviceLink {
 public:
  virtual ~DeviceLink() = default;
  // Returns whether all ranks have joined and every transfer submitted so far has been passed to
  // its queue. Until it returns true, the caller must not submit another transfer or record an
  // event after one. Throws an error of the link, including one of a transfer that a queue is
  // carrying out.
  virtual bool settled() = 0;
  // Gathers `bytes` bytes from each rank: out + r * bytes receives rank r's bytes from its `in`.
  // `in` may be this rank's place in `out`.
  virtual void gather(DeviceQueue& queue, const void* in, void* out, int64_t bytes) = 0;
  // Sends sends[r] to every other rank r and receives receives[r] from that rank.
  virtual void swap(DeviceQueue& queue, std::span<const ds_plugin_part> sends,
                    std::span<const ds_plugin_part> receives) = 0;
  // Ends the link's transfers on queues, whether the other ranks take part or not, so that a wait
  // for a queue returns. May be called on any thread.
  virtual void abort() noexcept = 0;
};

}  // namespace ds
