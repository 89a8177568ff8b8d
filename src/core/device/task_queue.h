#pragma once
#include <array>
#include <atomic>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace ds {

// Queues that fail together: the first error of one of them becomes the error of all.
class Faults {
 public:
  // A queue, whatever it is made of. fail() may come from any thread, once.
  class Member {
   public:
    virtual void fail(std::exception_ptr error) = 0;

   protected:
    ~Member() = default;
  };

  void fail(std::exception_ptr error);
  bool failed() const { return failed_.load(std::memory_order_acquire); }
  // One that comes late fails at once. It is removed before it ends.
  void add(Member* queue);
  void remove(Member* queue);

 private:
  std::atomic<bool> failed_{false};
  std::mutex mutex_;
  std::exception_ptr error_;
  std::vector<Member*> queues_;
};

// A thread that carries out tasks one after the other. Tickets count from 1. After an error, of a
// task or by fail(), tasks that have not begun are dropped, submit() throws the error, and so do
// wait() and done() for every ticket whose task did not finish. All calls may come from any thread.
//
// Nothing in here orders two threads but the submission of a task, before the task, and the end of
// a task, before whoever waits for its ticket. In particular no lock is taken by both sides: it
// would order them by accident, and hide a missing wait from a checker of races. So tasks travel in
// a list without a lock, and each ticket has a word of its own.
class TaskQueue final : public Faults::Member {
 public:
  // faults: the queues that it fails together with; null: it alone. Borrowed.
  explicit TaskQueue(std::string name, Faults* faults = nullptr);
  ~TaskQueue();  // finishes what was submitted
  TaskQueue(const TaskQueue&) = delete;
  TaskQueue& operator=(const TaskQueue&) = delete;

  const std::string& name() const { return name_; }
  uint64_t submit(std::function<void()> task);
  bool done(uint64_t ticket) const;
  void wait(uint64_t ticket) const;
  // The same, but returns false when that takes longer than about so many nanoseconds, up to 50 ms.
  bool wait_for(uint64_t ticket, int64_t ns) const;
  void fail(std::exception_ptr error) override;
  // Waits until nothing is queued or running. Errors stay for later calls.
  void finish() const noexcept;

 private:
  struct Task {
    std::function<void()> body;
    std::atomic<Task*> next{nullptr};
  };
  static constexpr size_t kWords = 1024;

  void loop(Task* before);
  Task* next_of(Task& before);
  void carry_out(Task& task, uint64_t ticket);
  bool finished(uint64_t ticket) const;
  void check(uint64_t ticket) const;
  // Once ready, or false after one sleep of `ns`; without a limit below 0.
  template <typename Ready>
  bool sleep_until(const Ready& ready, int64_t ns = -1) const;
  void wake_waiters();

  const std::string name_;
  Faults* const faults_;

  std::mutex submitting_;  // of those who submit
  Task* last_;             // under submitting_
  std::atomic<uint64_t> submitted_{0};
  std::atomic<uint32_t> arrivals_{0};  // the thread sleeps on it
  std::atomic<bool> thread_sleeps_{false};
  std::atomic<bool> stop_{false};

  // By ticket modulo kWords: the latest ticket that has finished there, in the order of the queue.
  std::array<std::atomic<uint64_t>, kWords> words_{};
  std::atomic<uint64_t> passed_{0};           // tasks that have finished or were dropped
  mutable std::atomic<uint32_t> changes_{0};  // those who wait sleep on it
  mutable std::atomic<int> sleepers_{0};
  std::atomic<bool> failing_{false}, failed_{false};  // failed_: error_ is there
  std::exception_ptr error_;
  std::thread thread_;  // last: starts when everything else exists
};

}  // namespace ds
