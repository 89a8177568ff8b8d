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

// A set of queues that fail together: the first error of one of them becomes the error of all.
class Faults {
 public:
  // A queue of any kind. fail() is called once, from any thread.
  class Member {
   public:
    virtual void fail(std::exception_ptr error) = 0;

   protected:
    ~Member() = default;
  };

  // Fails all queues with this error, unless they have already failed with an earlier one.
  void fail(std::exception_ptr error);
  bool failed() const { return failed_.load(std::memory_order_acquire); }
  // A queue that is added after an error fails at once. A queue must be removed before it is
  // destroyed.
  void add(Member* queue);
  void remove(Member* queue);

 private:
  std::atomic<bool> failed_{false};
  std::mutex mutex_;
  std::exception_ptr error_;
  std::vector<Member*> queues_;
};

// A thread that carries out tasks one after the other. Each task has a ticket, numbered from 1.
// After an error of a task, or after fail(), tasks that have not begun are dropped. submit() then
// throws the error, and so do wait() and done() for every ticket whose task did not finish. All
// functions may be called on any thread.
//
// Threads are ordered only by the submission of a task, which happens before the task runs, and by
// the end of a task, which happens before the return of a wait for its ticket. In particular, the
// two sides share no lock, which would order them by accident and hide a missing wait from
// ThreadSanitizer. So tasks are passed in a lock-free list, and the end of a task is stored in a
// word for its ticket (words_).
class TaskQueue final : public Faults::Member {
 public:
  // The queue fails together with the queues of `faults`, which is borrowed. If `faults` is null,
  // it fails alone.
  explicit TaskQueue(std::string name, Faults* faults = nullptr);
  // Runs all submitted tasks first, or drops them after an error.
  ~TaskQueue();
  TaskQueue(const TaskQueue&) = delete;
  TaskQueue& operator=(const TaskQueue&) = delete;

  const std::string& name() const { return name_; }
  // Appends a task and returns its ticket.
  uint64_t submit(std::function<void()> task);
  // Returns whether the ticket's task has finished. Throws the error if the task can no longer
  // finish.
  bool done(uint64_t ticket) const;
  // Waits until the ticket's task has finished; throws as done() does.
  void wait(uint64_t ticket) const;
  // Waits as wait() does, but returns false after about `ns` nanoseconds, at most 50 ms.
  bool wait_for(uint64_t ticket, int64_t ns) const;
  // Fails this queue alone.
  void fail(std::exception_ptr error) override;
  // Waits until all tasks submitted so far have ended or were dropped. Does not throw; later calls
  // throw the errors.
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
  // Returns true once `ready` returns true, or false after one sleep of `ns`; ns < 0 means no
  // limit.
  template <typename Ready>
  bool sleep_until(const Ready& ready, int64_t ns = -1) const;
  void wake_waiters();

  const std::string name_;
  Faults* const faults_;

  // Held while submitting.
  std::mutex submitting_;
  // The last task of the list. Guarded by submitting_.
  Task* last_;
  std::atomic<uint64_t> submitted_{0};
  // Incremented by every submission. The queue's thread sleeps until this value changes.
  std::atomic<uint32_t> arrivals_{0};
  std::atomic<bool> thread_sleeps_{false};
  std::atomic<bool> stop_{false};

  // words_[t % kWords] is the latest finished ticket with the same remainder as t.
  std::array<std::atomic<uint64_t>, kWords> words_{};
  // The number of tasks that have finished, have failed or were dropped.
  std::atomic<uint64_t> passed_{0};
  // Incremented whenever a task ends or the queue fails. Waiting threads sleep until this value
  // changes.
  mutable std::atomic<uint32_t> changes_{0};
  mutable std::atomic<int> sleepers_{0};
  // failing_ is set by the first call of fail(), failed_ once error_ is set.
  std::atomic<bool> failing_{false}, failed_{false};
  std::exception_ptr error_;
  // The last member, so that the thread starts when all other members exist.
  std::thread thread_;
};

}  // namespace ds
