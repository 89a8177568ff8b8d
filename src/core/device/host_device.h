#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "core/device/device.h"
#include "core/device/scalars.h"
#include "core/device/view.h"

namespace ds {

// An arena in anonymous memory of the process. It reserves addresses after its own, so that it can
// grow in place: a host keeps views of parameters while the engine grows.
class HostArena final : public Arena {
 public:
  explicit HostArena(int64_t bytes);
  ~HostArena() override;
  void grow(int64_t wanted) override;
  bool grows_in_place(int64_t wanted) const override { return wanted <= reserved_; }
  void discard(int64_t begin, int64_t end) override;

 private:
  // Bytes of addresses that belong to the arena, in whole pages. Those after bytes() have no
  // memory.
  int64_t reserved_ = 0;
};

// A queue that does everything at once, on the calling thread.
class InlineQueue final : public DeviceQueue {
 public:
  bool immediate() const override { return true; }
  void copy(void* to, const void* from, int64_t bytes) override;
  void fill(void* to, int byte, int64_t bytes) override;
  void launch(const Kernel& kernel, const LaunchArgs& args) override { kernel.run(args); }
  void run(std::function<void()> task) override { task(); }
  std::unique_ptr<Event> make_event() const override;
  // Does nothing, because all earlier work has been done.
  void record(Event&) override {}
  void wait(const Event& event) override { event.synchronize(); }
  void finish() const noexcept override {}
};

// The memory of the process as a device; its queues do all work on the calling thread.
class HostDevice final : public Device {
 public:
  const char* name() const override { return "host"; }
  const char* kernels() const override { return "cpu"; }
  bool shared() const override { return true; }
  std::shared_ptr<Arena> make_arena(Place place, int64_t bytes) override;
  std::shared_ptr<Arena> copy_arena(Place place, const Arena& arena, int64_t bytes) override;
  std::unique_ptr<DeviceQueue> make_queue(const std::string& name) override;
  void copy(void* to, const void* from, int64_t bytes) const override;
  void fill(void* to, int byte, int64_t bytes) const override;
};

}  // namespace ds
