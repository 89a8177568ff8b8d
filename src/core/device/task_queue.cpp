#include "core/device/task_queue.h"

#include <linux/futex.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <ctime>
#include <utility>

#include "core/base/error.h"
#include "core/base/signals.h"

namespace ds {
namespace {

// The longest sleep, in nanoseconds. It bounds the delay of a lost wake-up.
constexpr int64_t kLongestSleep = 50'000'000;

// The memory order of the counters and flags by which a sleeping thread and the thread that wakes
// it notice each other. Sequentially consistent operations ensure that at least one of the two sees
// the write of the other. ThreadSanitizer would treat them as synchronization and so miss errors.
// Builds for it use relaxed operations, which suffice on x86-64, whose atomic read-modify-write
// instructions are full barriers.
#ifdef __SANITIZE_THREAD__
constexpr std::memory_order kTold = std::memory_order_relaxed;
#else
constexpr std::memory_order kTold = std::memory_order_seq_cst;
#endif

// Sleeps while the word has this value, for at most `ns` nanoseconds and kLongestSleep.
void sleep_on(std::atomic<uint32_t>& word, uint32_t value, int64_t ns = kLongestSleep) {
  timespec longest{0, static_cast<long>(std::min(ns, kLongestSleep))};
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAIT_PRIVATE, value, &longest,
          nullptr, 0);
}

// Wakes all threads that sleep on the word.
void wake(std::atomic<uint32_t>& word) {
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAKE_PRIVATE, INT_MAX, nullptr,
          nullptr, 0);
}

}  // namespace

// Only the first error is kept. It is passed to every queue, including those that are added later.
void Faults::fail(std::exception_ptr error) {
  std::lock_guard lock(mutex_);
  if (failed()) return;
  error_ = std::move(error);
  failed_.store(true, std::memory_order_release);
  for (Member* queue : queues_) queue->fail(error_);
}

void Faults::add(Member* queue) {
  std::lock_guard lock(mutex_);
  queues_.push_back(queue);
  if (failed()) queue->fail(error_);
}

void Faults::remove(Member* queue) {
  std::lock_guard lock(mutex_);
  std::erase(queues_, queue);
}

TaskQueue::TaskQueue(std::string name, Faults* faults)
    : name_(std::move(name)), faults_(faults), last_(new Task) {
  // The thread inherits the mask that blocks all signals, and keeps it.
  SignalsBlocked blocked(SignalsBlocked::Which::all);
  thread_ = std::thread([this, first = last_] { loop(first); });
  if (faults_) faults_->add(this);
}

TaskQueue::~TaskQueue() {
  stop_.store(true, std::memory_order_release);
  arrivals_.fetch_add(1, kTold);
  wake(arrivals_);
  thread_.join();
  if (faults_) faults_->remove(this);
  delete last_;
}

// Appends to the list. Only submitting threads lock the mutex; the queue's thread follows `next`
// without locking.
uint64_t TaskQueue::submit(std::function<void()> body) {
  if (failed_.load(std::memory_order_acquire)) std::rethrow_exception(error_);
  auto* task = new Task{std::move(body)};
  uint64_t ticket;
  {
    std::lock_guard lock(submitting_);
    ticket = submitted_.load(std::memory_order_relaxed) + 1;
    submitted_.store(ticket, std::memory_order_relaxed);
    last_->next.store(task, std::memory_order_release);
    last_ = task;
  }
  arrivals_.fetch_add(1, kTold);
  if (thread_sleeps_.load(kTold)) wake(arrivals_);
  return ticket;
}

// The list always contains one task that has been carried out: `before`, whose successor is the
// next task.
void TaskQueue::loop(Task* before) {
  pthread_setname_np(pthread_self(), name_.substr(0, 15).c_str());
  for (uint64_t ticket = 1;; ++ticket) {
    Task* task = next_of(*before);
    // The queue has stopped: last_ is `before`, and the destructor deletes it.
    if (!task) return;
    delete before;
    before = task;
    carry_out(*task, ticket);
  }
}

// Waits for the next task. Returns null if the queue stops and no task is left.
TaskQueue::Task* TaskQueue::next_of(Task& before) {
  for (;;) {
    uint32_t arrivals = arrivals_.load(kTold);
    bool last = stop_.load(std::memory_order_acquire);
    Task* task = before.next.load(std::memory_order_acquire);
    if (task || last) return task;
    thread_sleeps_.exchange(true, kTold);
    if (!before.next.load()) sleep_on(arrivals_, arrivals);
    thread_sleeps_.store(false, std::memory_order_relaxed);
  }
}

// After an error, tasks are dropped, but passed_ still grows, so that finish() returns.
void TaskQueue::carry_out(Task& task, uint64_t ticket) {
  std::exception_ptr error;
  bool dropped = failed_.load(std::memory_order_acquire);
  if (!dropped) {
    try {
      task.body();
    } catch (...) {
      error = std::current_exception();
    }
  }
  // The captures of the task's function are destroyed before any thread sees that the task has
  // ended.
  task.body = nullptr;
  if (error) {
    faults_ ? faults_->fail(error) : fail(error);
  } else if (!dropped) {
    words_[ticket % kWords].store(ticket, std::memory_order_release);
  }
  passed_.store(ticket, std::memory_order_release);
  wake_waiters();
}

void TaskQueue::fail(std::exception_ptr error) {
  if (failing_.exchange(true, std::memory_order_relaxed)) return;
  error_ = std::move(error);
  failed_.store(true, std::memory_order_release);
  wake_waiters();
}

void TaskQueue::wake_waiters() {
  changes_.fetch_add(1, kTold);
  if (sleepers_.load(kTold) > 0) wake(changes_);
}

// sleepers_ is incremented before `ready` is called again, so any change after that call wakes this
// thread.
template <typename Ready>
bool TaskQueue::sleep_until(const Ready& ready, int64_t ns) const {
  if (ready()) return true;
  sleepers_.fetch_add(1, kTold);
  uint32_t seen = changes_.load(kTold);
  bool is = ready();
  while (!is) {
    sleep_on(changes_, seen, ns < 0 ? kLongestSleep : ns);
    seen = changes_.load(kTold);
    is = ready();
    if (ns >= 0) break;
  }
  sleepers_.fetch_sub(1, std::memory_order_relaxed);
  return is;
}

// Tickets finish in order, so a later ticket in the word means that this ticket has also finished.
bool TaskQueue::finished(uint64_t ticket) const {
  return words_[ticket % kWords].load(std::memory_order_acquire) >= ticket;
}

bool TaskQueue::done(uint64_t ticket) const {
  // failed_ is read before the word, so that a task that finished before the error counts as
  // finished.
  bool failed = failed_.load(std::memory_order_acquire);
  if (finished(ticket)) return true;
  if (failed) std::rethrow_exception(error_);
  return false;
}

void TaskQueue::check(uint64_t ticket) const {
  uint64_t most = submitted_.load(std::memory_order_relaxed);
  require(ticket <= most, "queue '{}': ticket must be at most {}, got {}", name_, most, ticket);
}

void TaskQueue::wait(uint64_t ticket) const {
  check(ticket);
  sleep_until([&] { return finished(ticket) || failed_.load(std::memory_order_acquire); });
  done(ticket);
}

bool TaskQueue::wait_for(uint64_t ticket, int64_t ns) const {
  check(ticket);
  sleep_until([&] { return finished(ticket) || failed_.load(std::memory_order_acquire); }, ns);
  return done(ticket);
}

void TaskQueue::finish() const noexcept {
  uint64_t all = submitted_.load(std::memory_order_relaxed);
  sleep_until([&] { return passed_.load(std::memory_order_acquire) >= all; });
}

}  // namespace ds
