// A device that libds does not know, defined only in tests/: one class for each interface of
// core/device.
#pragma once
#include <algorithm>
#include <atomic>
#include <bit>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "core/base/trace.h"
#include "core/device/device.h"
#include "kernels/kernel.h"

namespace ds::test {

// Counts of the work that a device was given, over all queues.
struct Counts {
  std::atomic<int64_t> arenas{0}, launches{0}, copies{0}, tasks{0}, records{0}, waits{0};
};

// Memory whose addresses no processor accepts: bit 62, then the number of an arena, then an offset.
// The bytes are in vectors that the device finds by the arena's number.
class Cells {
 public:
  std::byte* take(int64_t bytes) {
    std::lock_guard lock(mutex_);
    uint64_t number = ++made_;
    arenas_[number].resize(static_cast<size_t>(bytes));
    return std::bit_cast<std::byte*>(kBit | number << kShift);
  }
  void give_back(const std::byte* address) {
    std::lock_guard lock(mutex_);
    arenas_.erase(number_of(address));
  }
  void grow(const std::byte* address, int64_t bytes) {
    std::lock_guard lock(mutex_);
    arenas_.at(number_of(address)).resize(static_cast<size_t>(bytes));
  }
  void* reach(void* address) {
    auto bits = std::bit_cast<uint64_t>(address);
    // Host addresses are returned unchanged.
    if ((bits & kBit) == 0) return address;
    std::lock_guard lock(mutex_);
    return arenas_.at(number_of(address)).data() + (bits & ((uint64_t{1} << kShift) - 1));
  }

 private:
  static constexpr uint64_t kBit = uint64_t{1} << 62;
  static constexpr int kShift = 40;
  static uint64_t number_of(const void* address) {
    return (std::bit_cast<uint64_t>(address) & ~kBit) >> kShift;
  }

  std::mutex mutex_;
  std::map<uint64_t, std::vector<std::byte>> arenas_;
  uint64_t made_ = 0;
};

class CellArena final : public Arena {
 public:
  CellArena(Cells& cells, int64_t bytes) : cells_(cells) {
    if (bytes == 0) return;
    address_ = cells_.take(bytes);
    bytes_ = bytes;
  }
  ~CellArena() override {
    if (address_) cells_.give_back(address_);
  }
  void grow(int64_t wanted) override {
    cells_.grow(address_, wanted);
    bytes_ = wanted;
  }
  void discard(int64_t begin, int64_t end) override {
    std::memset(cells_.reach(address_ + begin), 0, static_cast<size_t>(end - begin));
  }

 private:
  Cells& cells_;
};

class PlainArena final : public Arena {
 public:
  explicit PlainArena(int64_t bytes) { grow(bytes); }
  ~PlainArena() override { std::free(address_); }
  void grow(int64_t wanted) override {
    if (wanted == bytes_) return;
    auto size = static_cast<size_t>((wanted + kPage - 1) / kPage * kPage);
    auto* made = static_cast<std::byte*>(std::aligned_alloc(kPage, size));
    std::memset(made, 0, size);
    if (address_) std::memcpy(made, address_, static_cast<size_t>(std::min(bytes_, wanted)));
    std::free(address_);
    address_ = made;
    bytes_ = wanted;
  }
  void discard(int64_t begin, int64_t end) override {
    std::memset(address_ + begin, 0, static_cast<size_t>(end - begin));
  }

 private:
  static constexpr int64_t kPage = 4096;
};

// The tasks of a queue, numbered from 1.
struct Work final : Faults::Member {
  mutable std::mutex mutex;
  mutable std::condition_variable changed;
  std::deque<std::function<void()>> tasks;
  uint64_t given = 0, finished = 0;
  bool over = false;
  std::exception_ptr error;

  void fail(std::exception_ptr with) override {
    std::lock_guard lock(mutex);
    error = std::move(with);
    changed.notify_all();
  }
  // Waits for a task; returns false if that takes longer than `ns`, and throws if the queue has
  // failed before.
  bool wait_for(uint64_t ticket, int64_t ns) const {
    std::unique_lock lock(mutex);
    changed.wait_for(lock, std::chrono::nanoseconds(ns),
                     [&] { return finished >= ticket || error; });
    if (finished < ticket && error) std::rethrow_exception(error);
    return finished >= ticket;
  }
};

class Mark final : public Event {
 public:
  void set(std::shared_ptr<const Work> work, uint64_t ticket) {
    work_ = std::move(work);
    ticket_ = ticket;
  }
  bool done() const override { return waiter()(0); }
  void synchronize() const override {
    auto ended = waiter();
    while (!ended(50'000'000)) continue;
  }
  std::function<bool(int64_t)> waiter() const override {
    return [work = work_, ticket = ticket_](int64_t ns) {
      return !work || work->wait_for(ticket, ns);
    };
  }

 private:
  std::shared_ptr<const Work> work_;
  uint64_t ticket_ = 0;
};

// A queue with a thread and a list of tasks under a lock.
class CountingQueue final : public DeviceQueue {
 public:
  CountingQueue(Device& device, Counts& counts) : device_(device), counts_(counts) {
    device_.faults().add(work_.get());
    thread_ = std::thread([this] { loop(); });
  }
  ~CountingQueue() override {
    {
      std::lock_guard lock(work_->mutex);
      work_->over = true;
      work_->changed.notify_all();
    }
    thread_.join();
    device_.faults().remove(work_.get());
  }

  void copy(void* to, const void* from, int64_t bytes) override {
    ++counts_.copies;
    give([this, to, from, bytes] { device_.copy(to, from, bytes); });
  }
  void fill(void* to, int byte, int64_t bytes) override {
    give([this, to, byte, bytes] { device_.fill(to, byte, bytes); });
  }
  void launch(const Kernel& kernel, const LaunchArgs& args) override {
    ++counts_.launches;
    std::vector<TensorView> views(args.in.begin(), args.in.end());
    views.insert(views.end(), args.out.begin(), args.out.end());
    give([this, &kernel, views = std::move(views), args = args]() mutable {
      for (TensorView& view : views) view.data = device_.reach(view.data);
      std::span<const TensorView> all(views);
      args.in = all.first(args.in.size());
      args.out = all.last(args.out.size());
      args.scalars =
          static_cast<StepScalars*>(device_.reach(const_cast<StepScalars*>(args.scalars)));
      kernel.run(args);
    });
  }
  void run(std::function<void()> task) override {
    ++counts_.tasks;
    give(std::move(task));
  }

  std::unique_ptr<Event> make_event() const override { return std::make_unique<Mark>(); }
  void record(Event& event) override {
    ++counts_.records;
    std::lock_guard lock(work_->mutex);
    static_cast<Mark&>(event).set(work_, work_->given);
  }
  void wait(const Event& event) override {
    ++counts_.waits;
    give([ended = event.waiter(), owner = owner_, number = number_] {
      while (!ended(50'000'000)) {
        if (owner) owner->idle(number);
      }
    });
  }
  void finish() const noexcept override {
    std::unique_lock lock(work_->mutex);
    work_->changed.wait(lock, [&] { return work_->finished == work_->given; });
  }

 private:
  void give(std::function<void()> body) {
    auto task = [this, body = std::move(body), owner = owner_, number = number_]() mutable {
      int64_t begin = now_ns();
      try {
        body();
      } catch (const std::exception& error) {
        if (owner) owner->failed(number, error);
        throw;
      }
      if (owner) owner->worked(number, begin, now_ns());
    };
    std::lock_guard lock(work_->mutex);
    if (work_->error) std::rethrow_exception(work_->error);
    work_->tasks.emplace_back(std::move(task));
    ++work_->given;
    work_->changed.notify_all();
  }

  void loop() {
    std::unique_lock lock(work_->mutex);
    for (;;) {
      work_->changed.wait(lock, [&] { return work_->over || !work_->tasks.empty(); });
      if (work_->tasks.empty()) return;
      std::function<void()> task = std::move(work_->tasks.front());
      work_->tasks.pop_front();
      bool drop = work_->error != nullptr;
      lock.unlock();
      try {
        if (!drop) task();
      } catch (...) {
        device_.faults().fail(std::current_exception());
      }
      task = nullptr;
      lock.lock();
      ++work_->finished;
      work_->changed.notify_all();
    }
  }

  Device& device_;
  Counts& counts_;
  std::shared_ptr<Work> work_ = std::make_shared<Work>();
  std::thread thread_;
};

class CountingDevice final : public Device {
 public:
  explicit CountingDevice(Counts& counts) : counts_(counts) {}

  const char* name() const override { return "counting"; }
  const char* kernels() const override { return "counting"; }
  bool shared() const override { return false; }
  std::shared_ptr<Arena> make_arena(Place place, int64_t bytes) override {
    ++counts_.arenas;
    if (place == Place::host) return std::make_shared<PlainArena>(bytes);
    return std::make_shared<CellArena>(cells_, bytes);
  }
  std::shared_ptr<Arena> copy_arena(Place place, const Arena& arena, int64_t bytes) override {
    std::shared_ptr<Arena> made = make_arena(place, bytes);
    if (arena.bytes() > 0) copy(made->address(), arena.address(), arena.bytes());
    return made;
  }
  std::unique_ptr<DeviceQueue> make_queue(const std::string&) override {
    return std::make_unique<CountingQueue>(*this, counts_);
  }
  void copy(void* to, const void* from, int64_t bytes) const override {
    std::memcpy(reach(to), reach(const_cast<void*>(from)), static_cast<size_t>(bytes));
  }
  void fill(void* to, int byte, int64_t bytes) const override {
    std::memset(reach(to), byte, static_cast<size_t>(bytes));
  }
  void* reach(void* address) const override { return cells_.reach(address); }

 private:
  Counts& counts_;
  mutable Cells cells_;
};

// Registers all kernels of the host under this device's name.
inline void add_counting_kernels(KernelRegistry& kernels) {
  for (KernelImpl impl : std::vector<KernelImpl>(kernels.all())) {
    impl.device = "counting";
    kernels.add(std::move(impl));
  }
}

}  // namespace ds::test
