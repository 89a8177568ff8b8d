#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "core/base/random.h"
#include "core/device/device.h"
#include "core/device/scalars.h"
#include "core/device/task_queue.h"
#include "core/device/view.h"

namespace ds {

// An event that is a ticket of a task queue, for ThreadQueue and for lanes that transfer files.
class TicketEvent final : public Event {
 public:
  void record(const TaskQueue& queue, uint64_t ticket) {
    queue_ = &queue;
    ticket_ = ticket;
  }
  bool done() const override { return !queue_ || ticket_ == 0 || queue_->done(ticket_); }
  void synchronize() const override {
    if (queue_ && ticket_ > 0) queue_->wait(ticket_);
  }
  std::function<bool(int64_t)> waiter() const override {
    return [at = *this](int64_t ns) {
      return !at.queue_ || at.ticket_ == 0 || at.queue_->wait_for(at.ticket_, ns);
    };
  }

 private:
  const TaskQueue* queue_ = nullptr;
  uint64_t ticket_ = 0;
};

// Delays that a test adds to a queue.
struct Delays {
  // A seed. If set, the thread sleeps for less than 100 us before some tasks, chosen at random.
  std::optional<uint64_t> jitter;
  // The time, in microseconds, for which the thread sleeps after each kernel and each task of
  // run(), as if the work took longer.
  int64_t work_us = 0;
};

// A queue whose work a thread of the host carries out. Its kernels are host code and access the
// device's memory at the addresses that Device::reach() returns.
class ThreadQueue final : public DeviceQueue {
 public:
  ThreadQueue(Device& device, const std::string& name, const Delays& delays = {});

  void copy(void* to, const void* from, int64_t bytes) override;
  void fill(void* to, int byte, int64_t bytes) override;
  void launch(const Kernel& kernel, const LaunchArgs& args) override;
  void run(std::function<void()> task) override;
  std::unique_ptr<Event> make_event() const override { return std::make_unique<TicketEvent>(); }
  void record(Event& event) override;
  void wait(const Event& event) override;
  void finish() const noexcept override { tasks_.finish(); }

 private:
  // The kind of a task: a wait, a copy or fill, or a kernel or function. Delays::work_us applies
  // only to the last kind, and waits are not reported to the owner.
  enum class Works : int8_t { waits, moves, works };
  template <typename Body>
  void submit(Works works, Body body);
  void sleep_before(uint64_t task) const;

  Device& device_;
  const Delays delays_;
  RandomStream stream_;
  // The number of tasks submitted, which selects the random delay of the next task.
  uint64_t given_ = 0;
  // The ticket of the last task.
  uint64_t last_ = 0;
  TaskQueue tasks_;
};

}  // namespace ds
