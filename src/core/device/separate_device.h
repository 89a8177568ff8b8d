#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "core/device/device.h"
#include "core/device/thread_queue.h"

namespace ds {

// A device in software that keeps what a real one would make us keep. Addresses of its memory are reserved
// and never mapped, so that host code which uses one faults; the bytes lie behind another address, the alias,
// which only reach() tells. Each queue is a thread, so that a missing wait is a race.
class SeparateDevice final : public Device {
 public:
  explicit SeparateDevice(const Delays& delays = {}) : delays_(delays) {}

  const char* name() const override { return "separate"; }
  const char* kernels() const override { return "cpu"; }
  bool shared() const override { return false; }
  std::shared_ptr<Arena> make_arena(Place place, int64_t bytes) override;
  std::shared_ptr<Arena> copy_arena(Place place, const Arena& arena, int64_t bytes) override;
  std::unique_ptr<DeviceQueue> make_queue(const std::string& name) override;
  void copy(void* to, const void* from, int64_t bytes) const override;
  void fill(void* to, int byte, int64_t bytes) const override;
  void* reach(void* address) const override;

 private:
  class Memory;
  struct Range {
    std::byte *begin, *end, *alias;
  };
  using Ranges = std::vector<Range>;
  // Its arenas as they are now. Threads of queues read the table, too, so it has no lock (see TaskQueue):
  // another one takes its place, and old ones stay until the device ends.
  void renew(const Memory* arena, bool exists);

  const Delays delays_;
  std::mutex changing_;
  std::vector<const Memory*> arenas_;
  std::vector<std::unique_ptr<const Ranges>> tables_;
  std::atomic<const Ranges*> table_{nullptr};
};

}  // namespace ds
