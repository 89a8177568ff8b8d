// usage: kept_ranks URL RANKS
//
// Forms a group of RANKS processes. After a sum and a barrier, one of them prints the bytes of
// operator new that it holds, the number of descriptors that it has opened, and its number of
// threads. Allocations of 1 MiB or more, such as the buffer for sums, are not included.
#include <malloc.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <new>

#include "comm/communicator.h"

namespace {

constexpr size_t kStage = size_t{1} << 20;
std::atomic<int64_t> held = 0;

void count(void* data, int64_t sign) {
  const size_t bytes = malloc_usable_size(data);
  if (bytes < kStage) held += sign * static_cast<int64_t>(bytes);
}

int64_t entries_of(const char* folder) {
  auto all = std::filesystem::directory_iterator(folder);
  return std::distance(begin(all), end(all));
}

int run_rank(const char* url, int rank, int ranks) {
  try {
    const int64_t bytes = held, files = entries_of("/proc/self/fd");
    auto comm = ds::create_communicator(url, {.rank = rank, .size = ranks, .timeout_ms = 60000});
    float value = 1, sum = 0;
    comm->all_reduce(&value, &sum, 1, DS_DTYPE_F32, "sum");
    comm->barrier("all");
    if (rank == ranks / 2) {
      const int64_t kept = held - bytes, more_files = entries_of("/proc/self/fd") - files;
      std::printf("%lld %lld %lld\n", static_cast<long long>(kept),
                  static_cast<long long>(more_files),
                  static_cast<long long>(entries_of("/proc/self/task")));
    }
    comm->barrier("last");
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "kept_ranks: %s\n", error.what());
    return 1;
  }
}

}  // namespace

[[gnu::noinline]] void* operator new(size_t bytes) {
  void* data = std::malloc(std::max<size_t>(1, bytes));
  if (data == nullptr) throw std::bad_alloc();
  count(data, 1);
  return data;
}

[[gnu::noinline]] void operator delete(void* data) noexcept {
  count(data, -1);
  std::free(data);
}

[[gnu::noinline]] void operator delete(void* data, size_t) noexcept { operator delete(data); }

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  const int ranks = std::atoi(argv[2]);
  for (int rank = 0; rank < ranks; ++rank) {
    if (fork() == 0) std::exit(run_rank(argv[1], rank, ranks));
  }
  int code = 0;
  for (int status = 0; wait(&status) > 0;) code = status != 0 ? 1 : code;
  return code;
}
