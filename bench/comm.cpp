// The libds side of bench/comm.py: collectives of processes of this host, 4 KiB to 256 MiB a rank, f32.
//   bench_comm RANKS [SCHEME]     SCHEME: shm (default), threads or gloo
// Prints "OPERATION KIND BYTES MICROSECONDS" a line. BYTES: the whole gathered or reduced buffer of a rank.
// KIND: user (malloc) or arena (as an engine maps its arena). copy: memcpy of BYTES in every rank at once.
#include <fmt/core.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "comm/communicator.h"
#include "core/base/trace.h"

namespace ds {
namespace {

using Buffer = std::unique_ptr<float, std::function<void(float*)>>;

Buffer make_buffer(bool arena, size_t bytes) {
  void* data = nullptr;
  if (arena) {
    data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data == MAP_FAILED) std::abort();
    madvise(data, bytes, MADV_HUGEPAGE);
  } else {
    data = std::malloc(bytes);
    if (!data) std::abort();
  }
  std::fill_n(static_cast<float*>(data), bytes / sizeof(float), 1.f);
  return {static_cast<float*>(data), [=](float* p) {
            if (arena) munmap(p, bytes);
            if (!arena) std::free(p);
          }};
}

// Microseconds of one call: the best batch of calls in a row. All sides of comm.py use these counts.
double best_us(Communicator& comm, size_t bytes, const std::function<void()>& body) {
  size_t calls = std::clamp<size_t>((size_t{4} << 20) / bytes, 1, 64);
  int batches = bytes >= (64u << 20) ? 2 : bytes >= (1u << 20) ? 5 : 9;
  double best = 0;
  for (int i = -1; i < batches; ++i) {
    comm.barrier("batch");
    int64_t begin = now_ns();
    for (size_t call = 0; call < calls; ++call) body();
    double us = static_cast<double>(now_ns() - begin) * 1e-3 / static_cast<double>(calls);
    if (i == 0 || (i > 0 && us < best)) best = us;
  }
  return best;
}

void bench_rank(const std::string& url, int rank, int size) {
  auto comm = create_communicator(url, {.rank = rank, .size = size});
  auto w = static_cast<size_t>(size);
  for (bool arena : {false, true}) {
    for (size_t bytes = 4u << 10; bytes <= (256u << 20); bytes *= 4) {
      Buffer in = make_buffer(arena, bytes), out = make_buffer(arena, bytes);
      auto report = [&](const char* name, const std::function<void()>& body) {
        double us = best_us(*comm, bytes, body);
        if (rank == 0) fmt::print("{} {} {} {:.2f}\n", name, arena ? "arena" : "user", bytes, us);
      };
      report("all_gather", [&] { comm->all_gather(in.get(), out.get(), bytes / w, "bench"); });
      report("reduce_scatter",
             [&] { comm->reduce_scatter(in.get(), out.get(), bytes / 4 / w, DS_DTYPE_F32, "bench"); });
      report("all_reduce", [&] { comm->all_reduce(in.get(), out.get(), bytes / 4, DS_DTYPE_F32, "bench"); });
      report("copy", [&] { std::memcpy(out.get(), in.get(), bytes); });
    }
  }
}

void bench_threads(int size) {
  std::vector<std::thread> ranks;
  for (int r = 0; r < size; ++r) ranks.emplace_back([=] { bench_rank("threads://bench", r, size); });
  for (std::thread& rank : ranks) rank.join();
}

void bench_processes(const std::string& scheme, int size) {
  std::string name = fmt::format("bench-{}", getpid());
  if (scheme == "gloo") name = std::filesystem::temp_directory_path() / name;
  std::string url = fmt::format("{}://{}", scheme, name);
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

int main(int argc, char** argv) {
  int size = argc > 1 ? std::atoi(argv[1]) : 2;
  std::string scheme = argc > 2 ? argv[2] : "shm";
  scheme == "threads" ? ds::bench_threads(size) : ds::bench_processes(scheme, size);
}
