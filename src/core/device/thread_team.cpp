#include "core/device/thread_team.h"

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "core/base/bytes_text.h"
#include "core/base/error.h"
#include "core/base/relax.h"
#include "core/base/round.h"

namespace ds {
namespace {

constexpr size_t kLine = 64;
constexpr size_t kPage = 4096;
// A spinning thread first polls kPolls times with a pause instruction, then yields between polls
// for kSpin.
constexpr int kPolls = 2000;
constexpr std::chrono::microseconds kSpin{40};

// Spins until ready() returns true or the spin time is over. Returns the last value of ready().
// After the first polls, the thread yields the core between polls, so that oversubscribed ranks let
// each other run.
template <typename Ready>
bool spin(const Ready& ready) {
  for (int i = 0; i < kPolls; ++i) {
    if (ready()) return true;
    cpu_relax();
  }
  auto end = std::chrono::steady_clock::now() + kSpin;
  do {
    if (ready()) return true;
    sched_yield();
  } while (std::chrono::steady_clock::now() < end);
  return ready();
}

// Binds the thread to one CPU. If the system refuses, the thread is not bound.
void pin(std::thread& thread, int cpu) {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (cpu < 0 || cpu >= CPU_SETSIZE) return;
  CPU_SET(cpu, &set);
  pthread_setaffinity_np(thread.native_handle(), sizeof set, &set);
}

}  // namespace

// The state that the threads share. A job is open from the store of `unclaimed` until `done`
// reaches `count`. A thread claims a task by decrementing a positive `unclaimed`. The job stays
// open until every claimed task has ended, so a thread may read `task` and `count` after a claim,
// and only then.
struct ThreadTeam::Impl {
  using Task = std::function<void(int64_t, int)>;

  int size = 1;
  size_t scratch_bytes = 0;
  size_t scratch_stride = 0;
  std::byte* scratch = nullptr;
  std::vector<std::thread> workers;

  const Task* task = nullptr;
  int64_t count = 0;
  std::mutex error_mutex;
  // The error of the task with the lowest index among those that have failed.
  std::exception_ptr error;
  int64_t error_index = 0;

  alignas(kLine) std::atomic<int64_t> unclaimed{0};
  alignas(kLine) std::atomic<int64_t> done{0};
  // The number of jobs opened so far. Workers sleep until it changes.
  alignas(kLine) std::atomic<uint32_t> epoch{0};
  std::atomic<int> sleepers{0};
  std::atomic<bool> caller_sleeps{false};
  std::atomic<bool> stop{false};

  // Keeps the error of the task with the lowest index, so that the thrown error does not depend on
  // timing.
  void keep(std::exception_ptr e, int64_t index) {
    std::lock_guard lock(error_mutex);
    if (error && error_index < index) return;
    error = std::move(e);
    error_index = index;
  }

  // Claims and runs tasks until none is left. The thread that ends the job's last task wakes the
  // caller.
  void drain(int thread) {
    for (;;) {
      int64_t left = unclaimed.load(std::memory_order_acquire);
      do {
        if (left <= 0) return;
      } while (!unclaimed.compare_exchange_weak(left, left - 1, std::memory_order_acq_rel));
      int64_t total = count;
      int64_t index = total - left;
      try {
        (*task)(index, thread);
      } catch (...) {
        keep(std::current_exception(), index);
      }
      bool last = done.fetch_add(1) + 1 == total;
      if (last && caller_sleeps.load()) done.notify_one();
    }
  }

  // Runs a worker's loop: waits for a job, first spinning, then sleeping, and runs tasks of the
  // job.
  void work(int thread) {
    uint32_t seen = 0;
    for (;;) {
      if (!spin([&] { return epoch.load(std::memory_order_acquire) != seen; })) {
        sleepers.fetch_add(1);
        epoch.wait(seen);
        sleepers.fetch_sub(1);
      }
      seen = epoch.load(std::memory_order_acquire);
      if (stop.load(std::memory_order_acquire)) return;
      drain(thread);
    }
  }

  // Opens a job for the workers. A worker increments `sleepers` before it waits for `epoch`, so
  // either it sees the new epoch or it is woken.
  void wake() {
    epoch.fetch_add(1);
    if (sleepers.load() > 0) epoch.notify_all();
  }

  // Waits, on the caller's thread, until all tasks of the job have ended.
  void wait_done() {
    if (spin([&] { return done.load(std::memory_order_acquire) == count; })) return;
    caller_sleeps.store(true);
    for (int64_t d = done.load(); d != count; d = done.load()) done.wait(d);
    caller_sleeps.store(false);
  }

  ~Impl() {
    stop.store(true);
    wake();
    for (std::thread& worker : workers) worker.join();
    std::free(scratch);
  }
};

ThreadTeam::ThreadTeam(int threads, size_t scratch_bytes, std::span<const int> cpus)
    : impl_(std::make_unique<Impl>()) {
  require(threads >= 1 && threads <= kMostThreads, "threads must be 1 to {}, got {}", kMostThreads,
          threads);
  require(cpus.empty() || cpus.size() >= static_cast<size_t>(threads),
          "cpus must have one entry for each of {} threads, got {}", threads, cpus.size());
  impl_->size = threads;
  impl_->scratch_bytes = scratch_bytes;
  impl_->scratch_stride = round_up(std::max(scratch_bytes, kLine), kPage);
  size_t bytes = impl_->scratch_stride * static_cast<size_t>(threads);
  impl_->scratch = static_cast<std::byte*>(std::aligned_alloc(kPage, bytes));
  if (!impl_->scratch) {
    raise(DS_ERROR_OUT_OF_MEMORY, "scratch of {} threads needs {}", threads,
          bytes_text(static_cast<int64_t>(bytes)));
  }
  impl_->workers.reserve(static_cast<size_t>(threads - 1));
  for (int t = 1; t < threads; ++t) {
    try {
      impl_->workers.emplace_back([impl = impl_.get(), t] { impl->work(t); });
    } catch (const std::system_error& error) {
      raise(DS_ERROR_OUT_OF_MEMORY, "the system refuses thread {} of {}: {}", t + 1, threads,
            error.code().message());
    }
    if (!cpus.empty()) pin(impl_->workers.back(), cpus[static_cast<size_t>(t)]);
  }
}

ThreadTeam::~ThreadTeam() = default;

int ThreadTeam::size() const { return impl_->size; }

size_t ThreadTeam::scratch_bytes() const { return impl_->scratch_bytes; }

// A single task, and all tasks of a team of one, run on the caller's thread, where an exception
// ends the loop at once.
void ThreadTeam::parallel_for(int64_t count, const std::function<void(int64_t, int)>& task) {
  if (impl_->size == 1 || count <= 1) {
    for (int64_t i = 0; i < count; ++i) task(i, 0);
    return;
  }
  impl_->task = &task;
  impl_->count = count;
  impl_->done.store(0);
  impl_->unclaimed.store(count, std::memory_order_release);
  impl_->wake();
  impl_->drain(0);
  impl_->wait_done();
  if (std::exception_ptr error = std::exchange(impl_->error, nullptr))
    std::rethrow_exception(error);
}

std::span<std::byte> ThreadTeam::scratch(int thread) {
  require(thread >= 0 && thread < impl_->size, "thread must be below the team's size {}, got {}",
          impl_->size, thread);
  return {impl_->scratch + impl_->scratch_stride * static_cast<size_t>(thread),
          impl_->scratch_bytes};
}

}  // namespace ds
