#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "core/base/dtype.h"
#include "core/base/error.h"
#include "core/base/round.h"
#include "core/device/device.h"
#include "core/device/plugin_base.h"
#include "core/device/task_queue.h"

namespace ds {

// An arena in the memory of a plugin's device. Its address does not change when it grows, because
// the plugin reserves addresses.
class PluginMemory final : public Arena {
 public:
  PluginMemory(const PluginBase& device, int64_t wanted) : device_(device) { grow(wanted); }
  ~PluginMemory() override {
    if (arena_) device_.table().arena_destroy(arena_);
  }
  void grow(int64_t wanted) override {
    if (wanted == bytes_) return;
    if (arena_) {
      device_.check(device_.table().arena_grow(arena_, wanted), "an arena");
    } else {
      void* address = nullptr;
      device_.check(device_.table().arena_create(device_.handle(), wanted, &arena_, &address),
                    "an arena");
      address_ = static_cast<std::byte*>(address);
    }
    bytes_ = wanted;
  }
  // Fills the whole pages within [begin, end) with zeros. The memory stays allocated.
  void discard(int64_t begin, int64_t end) override {
    constexpr int64_t kPage = 4096;
    int64_t low = round_up(begin, kPage), high = end / kPage * kPage;
    if (low < high) device_.fill(address_ + low, 0, high - low);
  }

 private:
  const PluginBase& device_;
  ds_plugin_arena* arena_ = nullptr;
};

// A queue that is a stream of a plugin's device.
//
// Calls submit work to the stream and return at once. A failure of any queue of the device is
// passed to all queues by fail(), and the next call of a queue throws it. fail() runs on the thread
// that has seen the failure, so a mutex guards the error. A flag is read first, so that calls do
// not lock the mutex as long as there is no error.
class PluginQueue final : public DeviceQueue, public Faults::Member {
 public:
  PluginQueue(PluginBase& device, const std::string& name);
  ~PluginQueue() override;

  void copy(void* to, const void* from, int64_t bytes) override {
    if (bytes > 0) give(table().copy(queue_, to, from, bytes), "a copy");
  }
  void fill(void* to, int byte, int64_t bytes) override {
    if (bytes > 0) give(table().fill(queue_, to, byte, bytes), "a fill");
  }
  void sum(std::span<const void* const> parts, DType dtype, float* out, int64_t count) override {
    const auto size = static_cast<int32_t>(parts.size());
    give(table().sum(queue_, parts.data(), size, dtype, out, count), "a sum over ranks");
  }
  bool runs_host_code() const override { return false; }
  std::unique_ptr<Kernel> make_kernel(const KernelRequest& request) override;
  std::byte* scratch(int64_t bytes) override;
  int64_t scratch_bytes() const override { return scratch_ ? scratch_->bytes() : 0; }
  ds_plugin_queue* get() const { return queue_; }
  // Throws the error that ended the device's queues, if any, or else the error of `status`, which a
  // plugin call that submitted work has returned.
  void give(int32_t status, std::string_view call);
  void launch(const Kernel& kernel, const LaunchArgs& args) override;
  void run(std::function<void()>) override {
    raise(DS_ERROR_INTERNAL, "a queue of device '{}' runs no host code", device_.name());
  }
  std::unique_ptr<Event> make_event() const override;
  void record(Event& event) override;
  void wait(const Event& event) override;
  std::unique_ptr<Instant> make_instant() const override;
  void note(Instant& instant) override;
  void finish() const noexcept override { table().finish(queue_); }
  bool captures() const override { return device_.info().captures != 0; }
  void begin_capture() override { give(table().capture_begin(queue_), "a capture"); }
  std::unique_ptr<CapturedWork> end_capture() override;
  void launch(const CapturedWork& work) override;
  bool marks() const override { return true; }
  void mark(uint32_t number) override { give(table().mark(queue_, number), "a mark"); }
  uint32_t marked() const override {
    return std::atomic_ref<uint32_t>(*table().marked(queue_)).load(std::memory_order_acquire);
  }
  void unmark() override {
    std::atomic_ref<uint32_t>(*table().marked(queue_)).store(0, std::memory_order_release);
  }

  void fail(std::exception_ptr error) override {
    std::lock_guard lock(failing_);
    error_ = std::move(error);
    failed_.store(true, std::memory_order_release);
  }
  // Throws the error that ended the device's queues, if there is one.
  void check_faults() const {
    if (!failed_.load(std::memory_order_acquire)) return;
    std::lock_guard lock(failing_);
    std::rethrow_exception(error_);
  }

 private:
  const ds_plugin_device_table& table() const { return device_.table(); }

  PluginBase& device_;
  ds_plugin_queue* const queue_;
  std::unique_ptr<PluginMemory> scratch_;
  mutable std::mutex failing_;
  std::atomic<bool> failed_{false};
  std::exception_ptr error_;
};

}  // namespace ds
