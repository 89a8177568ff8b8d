#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>

namespace ds {

// The compute threads of one rank: the caller and size() - 1 workers. Kernels divide work into
// tasks in such a way that results depend neither on the size of the team nor on which thread runs
// a task. Workers spin briefly, then sleep. Not reentrant; one caller at a time.
class ThreadTeam {
 public:
  static constexpr int kMostThreads = 1024;
  static constexpr size_t kScratchBytes = size_t{2} << 20;
  // `scratch_bytes` is the size of each thread's private memory, which is allocated here. `cpus` is
  // empty or has one entry per thread: worker t runs only on cpus[t], if the system allows it.
  // Thread 0 is the caller's and is not bound.
  explicit ThreadTeam(int threads, size_t scratch_bytes = kScratchBytes,
                      std::span<const int> cpus = {});
  ~ThreadTeam();
  ThreadTeam(const ThreadTeam&) = delete;
  ThreadTeam& operator=(const ThreadTeam&) = delete;

  int size() const;
  size_t scratch_bytes() const;

  // Calls task(index, thread) for every index in [0, count), with `thread` in [0, size()), and
  // returns when all calls have ended. If tasks throw, rethrows the exception of the lowest index;
  // tasks after it may then not have run.
  void parallel_for(int64_t count, const std::function<void(int64_t index, int thread)>& task);

  // Returns the private memory of `thread`, aligned to at least 64 bytes. Its contents are
  // undefined between tasks.
  std::span<std::byte> scratch(int thread);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ds
