#include "comm/comm_thread.h"

#include <algorithm>
#include <exception>
#include <new>
#include <utility>

#include "core/base/error.h"
#include "core/base/process_mark.h"

namespace ds {

Work::Work() : process_(this_process().number) {}

Work::Outcome Work::outcome_of(const std::function<void()>& job) {
  try {
    job();
  } catch (const Error& error) {
    return {error.status(), error.what(), error.details()};
  } catch (const std::bad_alloc&) {
    return {DS_ERROR_OUT_OF_MEMORY, "out of memory", {}};
  } catch (const std::exception& error) {
    return {DS_ERROR_INTERNAL, error.what(), {}};
  }
  return {};
}

void Work::end(Outcome outcome) {
  outcome_ = std::move(outcome);
  state_.store(1, std::memory_order_release);
  state_.notify_all();
}

void Work::wait() const {
  if (!done() && this_process().number != process_) {
    raise(DS_ERROR_STATE,
          "only process {}, which has started this collective, can wait for it, not its child {}",
          process_, this_process().number);
  }
  state_.wait(0, std::memory_order_acquire);
  if (outcome_.status != DS_OK) throw Error(outcome_.status, outcome_.message, outcome_.details);
}

CommThread::CommThread() : process_(this_process().number) {}

CommThread::~CommThread() {
  {
    std::lock_guard lock(mutex_);
    ending_ = true;
  }
  changed_.notify_all();
  if (!thread_.joinable()) return;
  // A thread cannot join itself.
  ensure(thread_.get_id() != std::this_thread::get_id(),
         "a job holds the last group of its own thread");
  thread_.join();
}

std::shared_ptr<Work> CommThread::make_now(const std::function<void()>& make) {
  auto work = std::make_shared<Work>();
  work->end(Work::outcome_of(make));
  return work;
}

bool CommThread::forked() const { return this_process().number != process_; }

std::shared_ptr<Work> CommThread::start(const void* owner, std::function<void()> make) {
  if (forked()) {
    raise(DS_ERROR_STATE, "the communicator was created by process {}, not by its child {}",
          process_, this_process().number);
  }
  auto work = std::make_shared<Work>();
  std::lock_guard lock(mutex_);
  if (!thread_.joinable()) thread_ = std::thread([this] { run(); });
  jobs_.push_back({owner, std::move(make), work});
  pending_.fetch_add(1);
  changed_.notify_all();
  return work;
}

void CommThread::run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return ending_ || !jobs_.empty(); });
    if (jobs_.empty()) return;
    Job job = std::move(jobs_.front());
    jobs_.pop_front();
    running_ = job.owner;
    lock.unlock();
    Work::Outcome outcome = Work::outcome_of(job.make);
    // The job's captures are released before the lock is taken and others see the end: they may
    // hold the last reference to a group.
    job.make = nullptr;
    lock.lock();
    running_ = nullptr;
    finish(job, std::move(outcome));
  }
}

void CommThread::finish(const Job& job, Work::Outcome outcome) {
  job.work->end(std::move(outcome));
  pending_.fetch_sub(1, std::memory_order_release);
  changed_.notify_all();
}

void CommThread::drain_slowly() {
  if (forked()) {
    raise(
        DS_ERROR_STATE,
        "process {} has started collectives that have not ended; its child {} has no part in them",
        process_, this_process().number);
  }
  std::unique_lock lock(mutex_);
  if (thread_.get_id() == std::this_thread::get_id()) return;
  changed_.wait(lock, [&] { return idle(); });
}

// If leave() is called on the thread itself, the running job is the caller, so it is not waited
// for.
void CommThread::leave(const void* owner, const std::function<void()>& interrupt) {
  std::unique_lock lock(mutex_);
  auto own = [&](const Job& job) { return job.owner == owner; };
  for (const Job& job : jobs_) {
    if (own(job))
      finish(job,
             {DS_ERROR_COMM, "the communicator was destroyed before the collective began", {}});
  }
  std::erase_if(jobs_, own);
  if (running_ != owner || thread_.get_id() == std::this_thread::get_id()) return;
  interrupt();
  changed_.wait(lock, [&] { return running_ != owner; });
}

}  // namespace ds
