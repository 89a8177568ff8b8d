// Measures how much of the communication is hidden by compute, for ./run bench overlap.
//
//   bench_overlap separate
//   bench_overlap RANK URL PART STEPS TOKENS
//
// The first form runs on the separate device, with 5 ms of sleep in each kernel and collective. The
// second form is one of two ranks and prints, on rank 0, the seconds of the best step of GPT-2
// under ZeRO-3. PART is "both", or "comm", with which kernels do nothing, except the two that
// decide whether a step takes place. TOKENS are the rank's tokens in a step, as one sequence.
#include <fmt/core.h>

#include <algorithm>
#include <cstdlib>
#include <exception>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "core/base/random.h"
#include "core/base/trace.h"
#include "core/device/separate_device.h"
#include "engine/engine.h"
#include "nn/models/gpt.h"

namespace ds {
namespace {

constexpr int kRanks = 2;
// The largest share of the sum of all sleeps that a step may take on the separate device.
constexpr double kBar = 0.7;

struct Job {
  int64_t layers, hidden, heads, vocab, seq, rows, accumulation;
};

Config config_of(const Job& job) {
  Config c;
  c.micro_batch = job.rows / job.seq;
  c.accumulation = job.accumulation;
  c.train_batch = c.micro_batch * c.accumulation * kRanks;
  c.compute = DS_DTYPE_BF16;
  c.zero.stage = 3;
  c.zero.overlap_comm = true;
  c.zero.param_persistence_threshold = 0;
  return c;
}

Graph graph_of(const Job& job) {
  ModelConfig m;
  m.family = "gpt";
  m.layers = job.layers;
  m.hidden = job.hidden;
  m.heads = job.heads;
  m.vocab = job.vocab;
  m.positions = job.seq;
  return build_gpt(m, job.rows, job.seq);
}

// Returns the seconds of the best step.
double train(Engine& engine, const Job& job, int steps) {
  auto count = static_cast<size_t>(job.rows * job.accumulation);
  std::vector<int32_t> tokens(count), targets(count);
  for (size_t i = 0; i < count; ++i) {
    auto words =
        RandomStream{1, 0, static_cast<uint32_t>(engine.runtime().comm().rank()), 0}.block(i);
    tokens[i] = static_cast<int32_t>(words[0] % static_cast<uint32_t>(job.vocab));
    targets[i] = static_cast<int32_t>(words[1] % static_cast<uint32_t>(job.vocab));
  }
  auto numel = static_cast<int64_t>(count);
  double best = 1e9;
  for (int s = 0; s < steps; ++s) {
    InputView inputs[] = {{tokens.data(), DS_DTYPE_I32, numel},
                          {targets.data(), DS_DTYPE_I32, numel}};
    int64_t begin = now_ns();
    engine.train_batch(inputs);
    best = std::min(best, static_cast<double>(now_ns() - begin) * 1e-9);
  }
  return best;
}

// Returns the number of kernels and collectives in a step.
int64_t sleeps_of(const Program& step) {
  int64_t count = 0;
  for (InstrId i : step.instrs.ids()) {
    Kind kind = step.instrs[i].def->kind;
    if (kind != Kind::copy && kind != Kind::file) count += step.runs(i);
  }
  return count;
}

// Every kernel and collective sleeps for the same time, so a step without overlap takes the sum of
// all sleeps on any machine. With overlap it must take at most kBar of that sum.
int on_separate() {
  constexpr int64_t kSleepUs = 5000;
  const Job job{2, 32, 2, 64, 8, 8, 16};
  double ratio[kRanks] = {};
  std::exception_ptr error[kRanks];
  auto rank_main = [&](int rank) {
    try {
      CommOptions options;
      options.rank = rank;
      options.size = kRanks;
      auto comm = create_communicator("threads://overlap", options);
      Config config = config_of(job);
      config.zero.reduce_bucket_size = 1;  // one collective a parameter
      // No gathered bucket is kept, so that every use needs a gather of its own.
      config.zero.max_reuse_distance = 0;
      EngineOptions engine_options;
      engine_options.device = [] {
        return std::make_unique<SeparateDevice>(Delays{.work_us = kSleepUs});
      };
      Engine engine(config, graph_of(job), *comm, engine_options);
      int64_t count = sleeps_of(engine.plan().step());
      double seconds = train(engine, job, 3), sum = static_cast<double>(count * kSleepUs) * 1e-6;
      ratio[rank] = seconds / sum;
      if (rank == 0) {
        fmt::print(
            "separate: {} kernels and collectives of 5 ms take {:.2f} s, their sum is {:.2f} s: "
            "{:.2f}, bar {}\n",
            count, seconds, sum, ratio[0], kBar);
      }
    } catch (...) {
      error[rank] = std::current_exception();
    }
  };
  std::thread other(rank_main, 1);
  rank_main(0);
  other.join();
  for (const std::exception_ptr& e : error) {
    if (e) std::rethrow_exception(e);
  }
  return ratio[0] <= kBar ? 0 : 1;
}

void do_nothing(const KernelContext&) {}

int as_rank(int rank, const std::string& url, std::string_view part, int steps, int64_t tokens) {
  const Job job{12, 768, 12, 50257, tokens, tokens, 1};
  CommOptions options;
  options.rank = rank;
  options.size = kRanks;
  auto comm = create_communicator(url, options);
  EngineOptions engine_options;
  if (part == "comm") {
    engine_options.kernel_filter = [](KernelRegistry& kernels) {
      KernelRegistry none;
      for (const KernelImpl& impl : kernels.all()) {
        // These two decide whether the step takes place, so they must run even here.
        bool decides = impl.op == "clip" || impl.op == "losses";
        none.add({.op = impl.op,
                  .name = impl.name,
                  .run = decides ? impl.run : do_nothing,
                  .refuse = impl.refuse});
      }
      kernels = none;
    };
  }
  Engine engine(config_of(job), graph_of(job), *comm, engine_options);
  double seconds = train(engine, job, steps);
  if (rank == 0) fmt::print("{:.3f}\n", seconds);
  return 0;
}

}  // namespace
}  // namespace ds

int main(int argc, char** argv) {
  try {
    if (argc == 2 && std::string_view(argv[1]) == "separate") return ds::on_separate();
    if (argc == 6)
      return ds::as_rank(std::atoi(argv[1]), argv[2], argv[3], std::atoi(argv[4]),
                         std::atoi(argv[5]));
  } catch (const std::exception& error) {
    fmt::print(stderr, "bench_overlap: {}\n", error.what());
    return 2;
  }
  fmt::print(stderr, "usage: bench_overlap separate | RANK URL both|comm STEPS TOKENS\n");
  return 2;
}
