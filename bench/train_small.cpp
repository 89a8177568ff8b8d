// Measures the tokens per second of a 7M GPT (bf16; ZeRO-3 and tier device unless others are given)
// on 2 ranks that are processes with one thread each, on random bytes. Prints the best and the
// median of STEPS (20) steps and, with --profile, where their time went. Tier nvme uses files in
// .cache/nvme.
//
//   bench_train_small [STEPS] [device|cpu|nvme] [STAGE] [SUB_GROUP_SIZE] [--profile]
#include <fmt/core.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "core/base/random.h"
#include "diagnostics/profile_table.h"
#include "engine/engine.h"
#include "nn/models/gpt.h"

namespace ds {
namespace {

constexpr int kRanks = 2;
constexpr int64_t kSeq = 128, kMicro = 8, kRows = kSeq * kMicro;

Config main_job(const std::string& tier, int stage, int64_t sub_group) {
  Config c;
  c.micro_batch = kMicro;
  c.accumulation = 1;
  c.train_batch = kMicro * kRanks;
  c.compute = DS_DTYPE_BF16;
  c.optimizer.lr = 1e-3;
  c.optimizer.beta2 = 0.95;
  c.optimizer.weight_decay = 0.1;
  c.zero.stage = stage;
  c.zero.optimizer_tier = tier == "nvme" ? Tier::nvme : (tier == "cpu" ? Tier::host : Tier::device);
  c.zero.nvme_path = ".cache/nvme";
  c.zero.param_persistence_threshold = 2000;
  c.zero.reduce_bucket_size = c.zero.prefetch_bucket_size = 2000000;
  c.zero.sub_group_size = sub_group;
  return c;
}

ModelConfig model() {
  ModelConfig m;
  m.family = "gpt";
  m.layers = 4;
  m.hidden = 384;
  m.heads = 6;
  m.vocab = 256;
  m.positions = kSeq;
  return m;
}

int rank_main(int rank, const std::string& url, int steps, const std::string& tier, int stage,
              int64_t sub_group, bool profile) {
  CommOptions options;
  options.rank = rank;
  options.size = kRanks;
  auto comm = create_communicator(url, options);
  Peak peak;
  if (profile) {
    ThreadTeam one(1);
    peak = measure_peak(one);
  }
  EngineOptions engine_options;
  engine_options.trace = profile;
  Engine engine(main_job(tier, stage, sub_group), build_gpt(model(), kRows, kSeq), *comm,
                engine_options);
  StepProfile sums(engine.plan().step());
  std::vector<int32_t> tokens(kRows), targets(kRows);
  std::vector<double> seconds;
  // The first three steps are not measured.
  for (int s = 0; s < steps + 3; ++s) {
    RandomStream stream{1, static_cast<uint32_t>(s), static_cast<uint32_t>(rank), 0};
    for (int64_t i = 0; i < kRows; ++i) {
      tokens[static_cast<size_t>(i)] =
          static_cast<int32_t>(stream.block(static_cast<uint64_t>(i))[0] % 256);
      targets[static_cast<size_t>(i)] =
          static_cast<int32_t>(stream.block(static_cast<uint64_t>(i))[1] % 256);
    }
    InputView inputs[] = {{tokens.data(), DS_DTYPE_I32, kRows},
                          {targets.data(), DS_DTYPE_I32, kRows}};
    int64_t begin = now_ns();
    engine.train_batch(inputs);
    int64_t end = now_ns();
    if (s >= 3) seconds.push_back(static_cast<double>(end - begin) * 1e-9);
    if (!profile) continue;
    std::vector<Trace::Span> spans = engine.runtime().trace()->take();
    if (s >= 3) sums.add(spans, begin, end);
  }
  std::sort(seconds.begin(), seconds.end());
  double tokens_per_step = kRows * kRanks;
  if (rank == 0) {
    fmt::print(
        "libds ranks=2 threads=1 stage={} tier={}: best {:.0f} tok/s median {:.0f} loss {:.3f}\n",
        stage, tier, tokens_per_step / seconds.front(),
        tokens_per_step / seconds[seconds.size() / 2], engine.control().last().loss);
    if (profile) fmt::print("{}", sums.table(peak).text());
    std::fflush(stdout);
  }
  return 0;
}

}  // namespace
}  // namespace ds

int main(int argc, char** argv) {
  int steps = argc > 1 ? std::atoi(argv[1]) : 20;
  std::string tier = argc > 2 ? argv[2] : "device";
  int stage = argc > 3 ? std::atoi(argv[3]) : 3;
  bool profile = argc > 4 && std::strcmp(argv[argc - 1], "--profile") == 0;
  int64_t sub_group = argc > 4 && !(profile && argc == 5) ? std::atoll(argv[4]) : 1000000;
  std::string url = fmt::format("shm://bench-{}", getpid());
  for (int rank = 0; rank < ds::kRanks; ++rank) {
    if (fork() == 0) _exit(ds::rank_main(rank, url, steps, tier, stage, sub_group, profile));
  }
  int failed = 0, status = 0;
  while (wait(&status) > 0) failed += status != 0;
  return failed != 0;
}
