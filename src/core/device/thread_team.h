#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>

namespace ds {

// The compute threads of one rank: the caller and size()-1 workers. Work is cut into tasks by the
// kernel so that results do not depend on the team: neither on its size nor on which thread runs a
// task. Workers spin briefly, then sleep. Not reentrant; one caller at a time.
class ThreadTeam {
 public:
  static constexpr int kMostThreads = 1024;
  static constexpr size_t kScratchBytes = size_t{2} << 20;
  // scratch_bytes: aligned private memory of each thread, allocated here once. cpus: empty, or one
  // a thread: worker t runs on cpus[t] only, where the system allows it. The caller is the host's
  // thread and stays free.
  explicit ThreadTeam(int threads, size_t scratch_bytes = kScratchBytes,
                      std::span<const int> cpus = {});
  ~ThreadTeam();
  ThreadTeam(const ThreadTeam&) = delete;
  ThreadTeam& operator=(const ThreadTeam&) = delete;

  int size() const;
  size_t scratch_bytes() const;

  // Calls task(index, thread) for every index in [0, count), thread in [0, size()); returns when
  // all are done. An exception of a task is rethrown here.
  void parallel_for(int64_t count, const std::function<void(int64_t index, int thread)>& task);

  // Scratch of `thread`, 64-byte aligned; contents are undefined between tasks.
  std::span<std::byte> scratch(int thread);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ds
