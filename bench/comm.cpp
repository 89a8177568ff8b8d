// Collectives of 2 and 4 ranks over threads and shared memory, 4 KiB to 64 MiB of payload a rank.
// Prints microseconds, GB/s of payload a rank, and the time of one memcpy of the payload over it; median.
#include <fmt/core.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <thread>
#include <vector>

#include "comm/communicator.h"
#include "core/base/trace.h"

namespace ds {
namespace {

int repeats(size_t bytes) { return bytes >= (8u << 20) ? 9 : bytes >= (512u << 10) ? 41 : 301; }

double median_us(size_t bytes, const std::function<void()>& body) {
  std::vector<double> times;
  for (int i = -3; i < repeats(bytes); ++i) {
    int64_t begin = now_ns();
    body();
    if (i >= 0) times.push_back(static_cast<double>(now_ns() - begin) * 1e-3);
  }
  std::nth_element(times.begin(), times.begin() + static_cast<long>(times.size() / 2), times.end());
  return times[times.size() / 2];
}

// bytes: the whole gathered or reduced buffer of a rank.
void bench_rank(const std::string& url, int rank, int size) {
  auto comm = create_communicator(url, {.rank = rank, .size = size});
  std::string_view transport = std::string_view(url).substr(0, url.find(':'));
  auto w = static_cast<size_t>(size);
  for (size_t bytes :
       {4u << 10, 16u << 10, 64u << 10, 256u << 10, 1u << 20, 3u << 20, 16u << 20, 64u << 20}) {
    std::vector<float> in(bytes / 4, 1.f), out(bytes / 4, 0.f);
    double copy = median_us(bytes, [&] { std::memcpy(out.data(), in.data(), bytes); });
    comm->barrier("copies are done");
    auto report = [&](const char* name, const std::function<void()>& body) {
      double us = median_us(bytes, body);
      if (rank == 0) {
        fmt::print("{:8}{:3} ranks  {:15}{:10} B{:11.1f} us{:8.2f} GB/s  {:5.2f} of memcpy\n", transport,
                   size, name, bytes, us, static_cast<double>(bytes) * 1e-3 / us, copy / us);
      }
    };
    report("all_gather", [&] { comm->all_gather(in.data(), out.data(), bytes / w, "bench"); });
    report("reduce_scatter",
           [&] { comm->reduce_scatter(in.data(), out.data(), bytes / 4 / w, DS_DTYPE_F32, "bench"); });
    report("all_reduce", [&] { comm->all_reduce(in.data(), out.data(), bytes / 4, DS_DTYPE_F32, "bench"); });
  }
}

void bench_threads(int size) {
  std::vector<std::thread> ranks;
  for (int r = 0; r < size; ++r) ranks.emplace_back([=] { bench_rank("threads://bench", r, size); });
  for (std::thread& rank : ranks) rank.join();
}

void bench_processes(int size) {
  std::string url = fmt::format("shm://bench-{}", getpid());
  std::fflush(stdout);
  for (int r = 1; r < size; ++r) {
    if (fork() != 0) continue;
    bench_rank(url, r, size);
    _exit(0);
  }
  bench_rank(url, 0, size);
  while (wait(nullptr) > 0) continue;
}

}  // namespace
}  // namespace ds

int main() {
  for (int size : {2, 4}) {
    ds::bench_processes(size);
    ds::bench_threads(size);
  }
}
