#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

#include "core/device/device.h"
#include "core/device/thread_queue.h"

namespace ds {

// A device in software that keeps what a real one would make us keep. Addresses of its memory are
// reserved and never mapped, so that host code which uses one faults; the bytes lie behind another
// address, the alias, which only reach() tells. Each queue is a thread, so that a missing wait is a
// race.
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
  // Where an arena is. Threads of queues read slots while others change, so a slot has no lock (see
  // TaskQueue) but a version, which is odd while somebody writes.
  struct Slot {
    std::atomic<uint32_t> version{0};
    std::atomic<std::byte*> begin{nullptr}, end{nullptr}, alias{nullptr};
  };
  static constexpr size_t kMostArenas = 4096;
  // Gives the arena a slot, or the one that it has new contents.
  size_t place(const Memory& arena, size_t slot = kMostArenas);
  void vacate(size_t slot);
  static void write(Slot& slot, std::byte* begin, std::byte* end, std::byte* alias);

  const Delays delays_;
  std::mutex changing_;  // of those who write slots
  std::unique_ptr<Slot[]> slots_ = std::make_unique<Slot[]>(kMostArenas);
  std::atomic<size_t> used_{0};  // slots from here on were never taken
};

}  // namespace ds
