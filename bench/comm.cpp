// The libds side of bench/comm.py: collectives of processes of this host in f32, with 4 KiB to 256
// MiB a rank.
//
//   bench_comm RANKS [SCHEME [BYTES]]
//
// SCHEME: shm (default), threads, tcp or a whole url; `lists` makes other measurements over shm.
// BYTES: measures this size alone.
//
// Prints "OPERATION KIND BYTES MICROSECONDS" a line. BYTES is the whole gathered or reduced buffer
// of a rank. KIND: user (malloc) or arena (as an engine maps its arena). copy: memcpy of BYTES in
// every rank at the same time. lists: 64 buffers of 4 KiB with a call each, and coalesced; and an
// all_reduce of 16 MiB beside a loop that takes about as long: first one after the other, then with
// the all_reduce started first.
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

#include "comm/comm_thread.h"
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

// Returns the microseconds of one call, from the best batch of consecutive calls. All sides of
// comm.py use these counts.
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

// The range of sizes, from the smallest to the largest.
struct Sizes {
  size_t first = 4u << 10, last = 256u << 20;
} sizes;

void bench_rank(const std::string& url, int rank, int size) {
  auto comm = create_communicator(url, {.rank = rank, .size = size});
  auto w = static_cast<size_t>(size);
  for (bool arena : {false, true}) {
    for (size_t bytes = sizes.first; bytes <= sizes.last; bytes *= 4) {
      Buffer in = make_buffer(arena, bytes), out = make_buffer(arena, bytes);
      auto report = [&](const char* name, const std::function<void()>& body) {
        double us = best_us(*comm, bytes, body);
        if (rank == 0) fmt::print("{} {} {} {:.2f}\n", name, arena ? "arena" : "user", bytes, us);
      };
      report("all_gather", [&] { comm->all_gather(in.get(), out.get(), bytes / w, "bench"); });
      report("reduce_scatter", [&] {
        comm->reduce_scatter(in.get(), out.get(), bytes / 4 / w, DS_DTYPE_F32, "bench");
      });
      report("all_reduce",
             [&] { comm->all_reduce(in.get(), out.get(), bytes / 4, DS_DTYPE_F32, "bench"); });
      report("copy", [&] { std::memcpy(out.get(), in.get(), bytes); });
    }
  }
}

// Many small buffers, with a call for each and with one coalesced call.
void bench_lists(Communicator& comm) {
  constexpr size_t kBuffers = 64, kCount = 1024;
  auto w = static_cast<size_t>(comm.size());
  Buffer in = make_buffer(true, kBuffers * kCount * 4 * w),
         out = make_buffer(true, kBuffers * kCount * 4 * w);
  std::vector<const void*> ins;
  std::vector<void*> outs;
  std::vector<size_t> counts(kBuffers, kCount), bytes(kBuffers, kCount * 4);
  for (size_t i = 0; i < kBuffers; ++i) {
    ins.push_back(in.get() + i * kCount * w);
    outs.push_back(out.get() + i * kCount * w);
  }
  auto report = [&](const char* name, const char* kind, const std::function<void()>& body) {
    double us = best_us(comm, kBuffers * kCount * 4, body);
    if (comm.rank() == 0) fmt::print("{} {} {} {:.2f}\n", name, kind, kBuffers * kCount * 4, us);
  };
  report("all_reduce", "calls", [&] {
    for (size_t i = 0; i < kBuffers; ++i)
      comm.all_reduce(ins[i], outs[i], kCount, DS_DTYPE_F32, "bench");
  });
  report("all_reduce", "coalesced",
         [&] { comm.all_reduce_coalesced(ins, outs, counts, DS_DTYPE_F32, "bench"); });
  report("all_gather", "calls", [&] {
    for (size_t i = 0; i < kBuffers; ++i) comm.all_gather(ins[i], outs[i], kCount * 4, "bench");
  });
  report("all_gather", "coalesced", [&] { comm.all_gather_coalesced(ins, outs, bytes, "bench"); });
}

void bench_started(Communicator& comm) {
  constexpr size_t kBytes = size_t{16} << 20;
  Buffer data = make_buffer(true, kBytes), sums = make_buffer(true, kBytes);
  double sink = 1;
  auto reduce = [&] { comm.all_reduce(data.get(), sums.get(), kBytes / 4, DS_DTYPE_F32, "bench"); };
  int64_t turns = 1000;
  auto compute = [&] {
    for (int64_t i = 0; i < turns; ++i) sink = sink * 1.0000001 + 1e-9;
  };
  auto report = [&](const char* kind, const std::function<void()>& body) {
    double us = best_us(comm, kBytes, body);
    if (comm.rank() == 0) fmt::print("all_reduce+loop {} {} {:.2f}\n", kind, kBytes, us);
    return us;
  };
  double alone = report("reduce", reduce), loop = report("calibration", compute);
  comm.broadcast(&alone, sizeof alone, 0, "bench");
  comm.broadcast(&loop, sizeof loop, 0, "bench");
  // The loop takes as long as the reduction: then a perfect overlap halves the time.
  turns = static_cast<int64_t>(static_cast<double>(turns) * alone / loop);
  report("loop", compute);
  report("in_turn", [&] { reduce(), compute(); });
  report("started", [&] {
    CommRequest request{.in = {data.get()}, .out = {sums.get()}, .counts = {kBytes / 4}};
    std::shared_ptr<Work> work = comm.start(request, "bench");
    compute();
    work->wait();
  });
  // Uses the value, so that the loop is not optimized away.
  if (sink == 0) fmt::print("\n");
}

void bench_other(const std::string& url, int rank, int size) {
  auto comm = create_communicator(url, {.rank = rank, .size = size});
  bench_lists(*comm);
  bench_started(*comm);
}

void bench_threads(int size) {
  std::vector<std::thread> ranks;
  for (int r = 0; r < size; ++r)
    ranks.emplace_back([=] { bench_rank("threads://bench", r, size); });
  for (std::thread& rank : ranks) rank.join();
}

void bench_processes(const std::string& scheme, int size) {
  bool lists = scheme == "lists";
  auto bench = lists ? bench_other : bench_rank;
  std::string name = fmt::format("bench-{}", getpid());
  if (scheme == "tcp") name = std::filesystem::temp_directory_path() / name;
  std::string url = scheme;
  if (scheme.find("://") == std::string::npos)
    url = fmt::format("{}://{}", lists ? "shm" : scheme, name);
  for (int r = 1; r < size; ++r) {
    if (fork() != 0) continue;
    bench(url, r, size);
    _exit(0);
  }
  bench(url, 0, size);
  while (wait(nullptr) > 0) continue;
}

}  // namespace
}  // namespace ds

int main(int argc, char** argv) {
  int size = argc > 1 ? std::atoi(argv[1]) : 2;
  std::string scheme = argc > 2 ? argv[2] : "shm";
  if (argc > 3) ds::sizes.first = ds::sizes.last = std::strtoull(argv[3], nullptr, 10);
  scheme == "threads" ? ds::bench_threads(size) : ds::bench_processes(scheme, size);
}
