#pragma once
#include <array>
#include <cstdint>
#include <span>

#include "ds_plugin.h"

namespace ds {

class DeviceQueue;

// What the ranks of a group open their links with.
using LinkId = std::array<uint8_t, 128>;

// One rank's place in a group of ranks on devices of their own, whose queues give each other bytes
// without memory of the host. It moves bytes and nothing else, as a transport does: sums are made
// by queues. All ranks make the same calls in the same order, from one thread at a time, except
// abort().
class DeviceLink {
 public:
  virtual ~DeviceLink() = default;
  // Whether all ranks have joined, and what was given is in its queue: before that, nothing more is
  // given, and nobody records an event behind it. Throws an error of the link, also of work that a
  // queue is doing.
  virtual bool settled() = 0;
  // out + r * bytes = what rank r gives at `in`, which may be that place of `out`.
  virtual void gather(DeviceQueue& queue, const void* in, void* out, int64_t bytes) = 0;
  // Sends sends[r] to and receives receives[r] from every other rank r.
  virtual void swap(DeviceQueue& queue, std::span<const ds_plugin_part> sends,
                    std::span<const ds_plugin_part> receives) = 0;
  // Ends what queues hold of it, whether other ranks come or not, so that they can be waited for.
  // Any thread.
  virtual void abort() noexcept = 0;
};

}  // namespace ds
