// One rank of a run that the crash tests kill: trains the tiny GPT, saves every 2 steps and prints
// every step's loss.
//   crash_driver RANK WORLD URL FOLDER STEPS STAGE TIER REPRODUCIBLE KILL_INSTR
// With DS_TEST_ASYNC in the environment a thread writes each checkpoint while the next steps run.
// Resumes from FOLDER's last checkpoint. TIER: device, cpu or nvme. KILL_INSTR: 0, or the number of
// the instruction before which the process kills itself. stdout: "resume STEP", then "STEP LOSS"
// with the loss as a hexadecimal float.
#include <array>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "checkpoint/folder.h"
#include "core/base/random.h"
#include "engine/engine.h"
#include "support/models.h"

namespace {

constexpr int64_t kSeq = 8, kVocab = 29, kWidth = 8, kLeaves = 4, kSaveEvery = 2;
constexpr int kKeep = 2;

ds::Config config_of(char** argv, int world) {
  ds::Config c = ds::test::make_config(std::stoi(argv[6]), kLeaves / world, world);
  std::string tier = argv[7];
  c.zero.optimizer_tier = tier == "nvme"  ? ds::Tier::nvme
                          : tier == "cpu" ? ds::Tier::host
                                          : ds::Tier::device;
  if (c.zero.stage == 3) c.zero.param_tier = c.zero.optimizer_tier;
  c.zero.nvme_path = argv[4];
  c.zero.param_persistence_threshold = 100;
  c.reproducible = std::string(argv[8]) == "1";
  return c;
}

// Draws the tokens and targets of one leaf. They do not depend on how leaves are divided among
// ranks.
void draw(int64_t step, int64_t leaf, int32_t* tokens, int32_t* targets) {
  ds::RandomStream stream{5, static_cast<uint32_t>(step), static_cast<uint32_t>(leaf), 0};
  for (int64_t i = 0; i < kSeq; ++i) {
    std::array<uint32_t, 4> words = stream.block(static_cast<uint64_t>(i));
    tokens[i] = static_cast<int32_t>(words[0] % kVocab);
    targets[i] = static_cast<int32_t>(words[1] % kVocab);
  }
}

ds::StepResult train(ds::Engine& engine, ds::Communicator& comm) {
  int64_t micros = kLeaves / comm.size(), numel = micros * kSeq;
  std::vector<int32_t> tokens(static_cast<size_t>(numel)), targets(tokens.size());
  for (int64_t m = 0; m < micros; ++m) {
    draw(engine.control().steps(), m * comm.size() + comm.rank(), tokens.data() + m * kSeq,
         targets.data() + m * kSeq);
  }
  ds::InputView inputs[] = {{tokens.data(), DS_DTYPE_I32, numel},
                            {targets.data(), DS_DTYPE_I32, numel}};
  return engine.train_batch(inputs);
}

void run(char** argv) {
  ds::CommOptions options;
  options.rank = std::stoi(argv[1]);
  options.size = std::stoi(argv[2]);
  std::string folder = argv[4];
  int64_t steps = std::stoll(argv[5]), kill_at = std::stoll(argv[9]), instr = 0;
  std::unique_ptr<ds::Communicator> comm = ds::create_communicator(argv[3], options);
  ds::EngineOptions engine_options;
  engine_options.before_instr = [&](size_t) {
    if (++instr == kill_at) std::raise(SIGKILL);
  };
  ds::Graph graph = ds::test::make_tiny_gpt(1, kWidth, 2, kVocab, kSeq, kSeq, 0.1);
  ds::Engine engine(config_of(argv, options.size), graph, *comm, engine_options);
  bool async = std::getenv("DS_TEST_ASYNC") != nullptr;
  std::string last = ds::latest_checkpoint(folder);
  if (!last.empty()) engine.checkpoints().load(last);
  std::printf("resume %ld\n", static_cast<long>(engine.control().steps()));
  while (engine.control().steps() < steps) {
    ds::StepResult r = train(engine, *comm);
    std::printf("%ld %a\n", static_cast<long>(r.step), r.loss);
    std::fflush(stdout);
    if (r.step % kSaveEvery != 0) continue;
    if (async) {
      engine.checkpoints().start_save(folder, {}, {.newest = kKeep});
    } else {
      engine.checkpoints().save(folder, {}, {.newest = kKeep});
    }
  }
  engine.checkpoints().wait();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 10) return 2;
  try {
    run(argv);
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
