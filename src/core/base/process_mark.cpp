#include "core/base/process_mark.h"

#include <pthread.h>
#include <unistd.h>

#include <atomic>

namespace ds {
namespace {

std::atomic<uint64_t> forks{0};
std::atomic<int32_t> process_number{getpid()};

// The child runs this handler before fork() returns, so its first call already sees the new count.
[[maybe_unused]] const int counts_forks = pthread_atfork(nullptr, nullptr, [] {
  forks.fetch_add(1, std::memory_order_relaxed);
  process_number.store(getpid(), std::memory_order_relaxed);
});

}  // namespace

ProcessMark this_process() noexcept {
  return {process_number.load(std::memory_order_relaxed), forks.load(std::memory_order_relaxed)};
}

}  // namespace ds
