// A queue that is a thread. All work, including waits, consists of tasks of the underlying
// TaskQueue, so the issuing thread never blocks when it submits work. Recording an event stores the
// ticket of the last task submitted.

#include "core/device/thread_queue.h"

#include <chrono>
#include <cstring>
#include <exception>
#include <functional>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "core/base/hash.h"
#include "core/base/trace.h"
#include "core/device/scalars.h"
#include "core/device/view.h"

namespace ds {

ThreadQueue::ThreadQueue(Device& device, const std::string& name, const Delays& delays)
    : device_(device),
      delays_(delays),
      stream_{delays.jitter.value_or(0), 0, 0, static_cast<uint32_t>(hash64(name))},
      tasks_(name, &device.faults()) {}

// Sleeps for less than 100 us before a quarter of the tasks. The seed of Delays::jitter determines
// which, and how long.
void ThreadQueue::sleep_before(uint64_t task) const {
  uint32_t drawn = stream_.block(task)[0];
  if (drawn % 4 == 0) std::this_thread::sleep_for(std::chrono::microseconds(drawn / 4 % 100));
}

// Submits work as a task that reports its times and errors to the owner and adds the delays of a
// test.
template <typename Body>
void ThreadQueue::submit(Works works, Body body) {
  auto task = [this, works, body = std::move(body), owner = owner_, number = number_,
               task = given_++] {
    if (delays_.jitter) sleep_before(task);
    int64_t begin = owner ? now_ns() : 0;
    try {
      body();
    } catch (const std::exception& error) {
      if (owner) owner->failed(number, error);
      throw;
    }
    if (works == Works::waits) return;
    if (works == Works::works && delays_.work_us > 0)
      std::this_thread::sleep_for(std::chrono::microseconds(delays_.work_us));
    if (owner) owner->worked(number, begin, now_ns());
  };
  last_ = tasks_.submit(std::move(task));
}

// Addresses are translated when the work is submitted, so a task uses the mapping that was valid
// then.
void ThreadQueue::copy(void* to, const void* from, int64_t bytes) {
  void* target = device_.reach(to);
  const void* source = device_.reach(const_cast<void*>(from));
  submit(Works::moves, [=] { std::memcpy(target, source, static_cast<size_t>(bytes)); });
}

void ThreadQueue::fill(void* to, int byte, int64_t bytes) {
  void* target = device_.reach(to);
  submit(Works::moves, [=] { std::memset(target, byte, static_cast<size_t>(bytes)); });
}

// The views are copied, because the caller may change its views before the task runs. The kernel
// must outlive its launches.
void ThreadQueue::launch(const Kernel& kernel, const LaunchArgs& args) {
  std::vector<TensorView> views;
  views.reserve(args.in.size() + args.out.size());
  for (std::span<const TensorView> some : {args.in, args.out}) {
    for (TensorView view : some) {
      view.data = device_.reach(view.data);
      views.push_back(view);
    }
  }
  submit(Works::works, [this, &kernel, views = std::move(views), args] {
    LaunchArgs reached = args;
    std::span<const TensorView> all(views);
    reached.in = all.first(args.in.size());
    reached.out = all.last(args.out.size());
    reached.scalars =
        static_cast<const StepScalars*>(device_.reach(const_cast<StepScalars*>(args.scalars)));
    kernel.run(reached);
  });
}

void ThreadQueue::run(std::function<void()> task) { submit(Works::works, std::move(task)); }

void ThreadQueue::record(Event& event) { static_cast<TicketEvent&>(event).record(tasks_, last_); }

// The queue's thread waits for an event of any kind of queue, and reports to the owner every 50 ms
// that it is idle.
void ThreadQueue::wait(const Event& event) {
  constexpr int64_t kLook = 50'000'000;
  submit(Works::waits, [done = event.waiter(), owner = owner_, number = number_] {
    while (!done(kLook)) {
      if (owner) owner->idle(number);
    }
  });
}

}  // namespace ds
