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

// A started collective, held by shared pointers. Threadsafe.
class Work {
 public:
  Work();
  bool done() const { return state_.load(std::memory_order_acquire) != 0; }
  // Waits until the collective has ended and throws its error if it failed. May be called
  // repeatedly. In a forked child, waiting for an unfinished collective throws DS_ERROR_STATE,
  // because the collective does not continue there.
  void wait() const;

 private:
  friend class CommThread;
  // How a collective ended.
  struct Outcome {
    ds_status status = DS_OK;
    std::string message;
    ErrorDetails details;
  };
  static Outcome outcome_of(const std::function<void()>& job);
  void end(Outcome outcome);

  const pid_t process_;
  // 1 once outcome_ is set.
  std::atomic<int> state_{0};
  Outcome outcome_;
};

// A thread that performs the collectives that a rank's groups have started, one after the other.
// The thread itself is created when the first collective is started.
class CommThread {
 public:
  CommThread();
  ~CommThread();
  CommThread(const CommThread&) = delete;
  CommThread& operator=(const CommThread&) = delete;

  // Queues a job for the thread. `owner` identifies the group for leave().
  std::shared_ptr<Work> start(const void* owner, std::function<void()> job);
  // Performs the job on the calling thread and returns its work, which has then ended.
  static std::shared_ptr<Work> make_now(const std::function<void()>& job);
  bool idle() const { return pending_.load(std::memory_order_acquire) == 0; }
  // Waits until all started collectives have ended. Does not wait if a started collective calls it.
  // In a forked child, throws DS_ERROR_STATE if some collectives have not ended.
  void drain() {
    if (!idle()) drain_slowly();
  }
  // Ends the collectives that this owner has started. Jobs that have not begun end with an error;
  // if one is running, calls `interrupt` and waits until it has ended.
  void leave(const void* owner, const std::function<void()>& interrupt);
  // Returns whether the calling process is a forked child of the process that created this object.
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
  // Number of jobs that are queued or running.
  std::atomic<int> pending_{0};
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Job> jobs_;
  // The owner of the running job.
  const void* running_ = nullptr;
  bool ending_ = false;
  std::thread thread_;
};

}  // namespace ds
