#include "core/device/task_queue.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <stdexcept>
#include <thread>
#include <vector>

#include "core/base/error.h"

namespace ds {
namespace {

std::exception_ptr error_of(const char* text) {
  return std::make_exception_ptr(std::runtime_error(text));
}

std::string error_text(const std::function<void()>& body) {
  try {
    body();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}

// A gate that holds the tasks of a queue until it is opened.
class Gate {
 public:
  void open() {
    open_.store(1);
    open_.notify_all();
  }
  void pass() const { open_.wait(0); }

 private:
  std::atomic<int> open_{0};
};

TEST(TaskQueue, KeepsTheOrder) {
  std::vector<int> seen;
  TaskQueue queue("tasks");
  uint64_t last = 0;
  // More tasks than the queue has completion words.
  for (int i = 0; i < 3000; ++i) {
    last = queue.submit([&seen, i] { seen.push_back(i); });
    EXPECT_EQ(last, static_cast<uint64_t>(i) + 1);
  }
  queue.wait(last);
  queue.wait(1);
  EXPECT_TRUE(queue.done(last));
  ASSERT_EQ(seen.size(), 3000u);
  for (int i = 0; i < 3000; ++i) EXPECT_EQ(seen[static_cast<size_t>(i)], i);
  EXPECT_EQ(error_text([&] { queue.wait(last + 1); }),
            "queue 'tasks': ticket must be at most 3000, got 3001");
}

TEST(TaskQueue, DestructionFinishesSubmittedTasks) {
  std::atomic<int> done{0};
  {
    TaskQueue queue("tasks");
    for (int i = 0; i < 50; ++i) queue.submit([&] { ++done; });
  }
  EXPECT_EQ(done.load(), 50);
}

// Many tickets share one word. A waiter that lags behind must not mistake another ticket's value
// for its own.
TEST(TaskQueue, AWaiterWaitsForItsOwnTicket) {
  TaskQueue queue("tasks");
  Gate gate;
  std::atomic<int> passed{0};
  uint64_t ticket = 0;
  for (int i = 0; i < 1500; ++i) ticket = queue.submit([] {});
  queue.wait(ticket);
  uint64_t held = queue.submit([&] { gate.pass(); });
  std::thread waiter([&] {
    queue.wait(held);
    ++passed;
  });
  EXPECT_FALSE(queue.done(held));
  EXPECT_EQ(passed.load(), 0);
  gate.open();
  waiter.join();
  EXPECT_TRUE(queue.done(held));
}

TEST(TaskQueue, ReleasesATaskBeforeItsEndIsSeen) {
  auto held = std::make_shared<int>(1);
  std::weak_ptr<int> watch = held;
  TaskQueue queue("tasks");
  queue.wait(queue.submit([held = std::move(held)] {}));
  EXPECT_TRUE(watch.expired());
}

TEST(TaskQueue, DropsTasksAfterAnError) {
  TaskQueue queue("tasks");
  Gate gate;
  int later = 0;
  uint64_t fine = queue.submit([&] { gate.pass(); });
  uint64_t bad = queue.submit([] { throw std::runtime_error("first"); });
  uint64_t dropped = queue.submit([&] { ++later; });
  gate.open();
  EXPECT_EQ(error_text([&] { queue.wait(dropped); }), "first");
  EXPECT_EQ(error_text([&] { queue.wait(bad); }), "first");
  EXPECT_EQ(error_text([&] { queue.wait(fine); }), "");
  EXPECT_EQ(error_text([&] { queue.done(bad); }), "first");
  EXPECT_EQ(error_text([&] { queue.submit([] {}); }), "first");
  queue.finish();
  EXPECT_EQ(later, 0);
}

// An error on one queue releases a thread that waits on another queue whose task does not end.
TEST(Faults, AnErrorOnOneQueueEndsAll) {
  Faults faults;
  TaskQueue stuck("stuck", &faults), failing("failing", &faults);
  Gate gate;
  uint64_t held = stuck.submit([&] { gate.pass(); });
  int later = 0;
  uint64_t behind = stuck.submit([&] { ++later; });
  failing.submit([] { throw std::runtime_error("the cause"); });
  EXPECT_EQ(error_text([&] { stuck.wait(held); }), "the cause");
  EXPECT_EQ(error_text([&] { stuck.wait(behind); }), "the cause");
  EXPECT_TRUE(faults.failed());
  faults.fail(error_of("too late"));
  EXPECT_EQ(error_text([&] { stuck.submit([] {}); }), "the cause");
  gate.open();
  stuck.finish();
  EXPECT_EQ(later, 0);
  TaskQueue young("young", &faults);
  EXPECT_EQ(error_text([&] { young.submit([] {}); }), "the cause");
}

TEST(TaskQueue, ManyThreadsSubmitAndWait) {
  TaskQueue queue("tasks");
  // Only the queue's thread writes this sum.
  int64_t sum = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 500; ++i) {
        uint64_t ticket = queue.submit([&] { ++sum; });
        if (i % 7 == 0) queue.wait(ticket);
      }
    });
  }
  for (std::thread& t : threads) t.join();
  queue.wait(2000);
  EXPECT_EQ(sum, 2000);
}

}  // namespace
}  // namespace ds
