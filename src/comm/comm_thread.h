#pragma once
#include <sys/types.h>

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "core/base/error.h"
#include "ds.h"

namespace ds {

// A collective that was started; it lives as long as anyone holds it. Threadsafe.
class Work {
 public:
  Work();
  bool done() const { return state_.load(std::memory_order_acquire) != 0; }
  // Returns when it has ended well, throws the error that it ended with. Also again. DS_ERROR_STATE
  // in a forked child, where it goes on no more.
  void wait() const;

 private:
  friend class CommThread;
  // How a collective has ended.
  struct Outcome {
    ds_status status = DS_OK;
    std::string message;
    ErrorDetails details;
  };
  static Outcome outcome_of(const std::function<void()>& job);
  void end(Outcome outcome);

  const pid_t process_;
  std::atomic<int> state_{0};  // 1: outcome_ is there
  Outcome outcome_;
};

// What the groups of a rank have started, made one after the other on a thread that begins with the
// first.
class CommThread {
 public:
  CommThread();
  ~CommThread();
  CommThread(const CommThread&) = delete;
  CommThread& operator=(const CommThread&) = delete;

  std::shared_ptr<Work> start(const void* owner, std::function<void()> job);
  // Makes it on this thread; the work has ended.
  static std::shared_ptr<Work> make_now(const std::function<void()>& job);
  bool idle() const { return pending_.load(std::memory_order_acquire) == 0; }
  // Waits for all that was started; on the thread itself returns at once. DS_ERROR_STATE in a
  // forked child where something is left.
  void drain() {
    if (!idle()) drain_slowly();
  }
  // Ends what this owner has started: what has not begun becomes an error, for what is running
  // `interrupt` is called before it is waited for.
  void leave(const void* owner, const std::function<void()>& interrupt);
  // Whether this is a forked child of the process that made it.
  bool forked() const;

 private:
  struct Job {
    const void* owner;
    std::function<void()> make;
    std::shared_ptr<Work> work;
  };

  void run();
  void drain_slowly();
  void finish(const Job& job, Work::Outcome outcome);

  const pid_t process_;
  std::atomic<int> pending_{0};  // queued and running
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Job> jobs_;
  const void* running_ = nullptr;  // owner of the running one
  bool ending_ = false;
  std::thread thread_;
};

}  // namespace ds
