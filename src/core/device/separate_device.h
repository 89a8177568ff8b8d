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

// A device in software that enforces the rules of a real one. The addresses of its memory are
// reserved but not accessible, so host code that dereferences one faults. The bytes are at another
// address, the alias, which only reach() returns. Each queue is a thread, so a missing wait is a
// data race.
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
  // The addresses of one arena. Threads of queues may read a slot while a writer changes it. A lock
  // would hide missing waits (see TaskQueue), so a slot has a version, which is odd while a writer
  // changes the slot.
  struct Slot {
    std::atomic<uint32_t> version{0};
    std::atomic<std::byte*> begin{nullptr}, end{nullptr}, alias{nullptr};
  };
  static constexpr size_t kMostArenas = 4096;
  // Assigns a slot to a new arena (`slot` is kMostArenas), or updates its slot. Returns the slot.
  size_t place(const Memory& arena, size_t slot = kMostArenas);
  void vacate(size_t slot);
  static void write(Slot& slot, std::byte* begin, std::byte* end, std::byte* alias);

  const Delays delays_;
  // Held while writing slots.
  std::mutex changing_;
  std::unique_ptr<Slot[]> slots_ = std::make_unique<Slot[]>(kMostArenas);
  // Slots from this index on were never used.
  std::atomic<size_t> used_{0};
};

}  // namespace ds
