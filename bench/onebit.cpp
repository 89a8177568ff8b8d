// Compares a step with fewer bytes with the exact one, for ./run bench onebit.
//
//   bench_onebit RANK RANKS URL STAGE STEPS
//
// This program is one of the ranks. It prints the seconds (of the best step) and the bytes received
// in a step of a small GPT in bf16 with Adam, then with 1-bit Adam after its freeze or, at stage 3,
// with ZeRO++'s codes (hpZ needs nodes). The third figure of a line is the bytes of a step before
// the freeze.
#include <fmt/core.h>

#include <algorithm>
#include <cstdlib>
#include <exception>
#include <string>
#include <vector>

#include "core/base/random.h"
#include "core/base/trace.h"
#include "engine/engine.h"
#include "nn/models/gpt.h"

namespace ds {
namespace {

// A GPT with as many layers as that of examples/train.json and a larger width and vocabulary, so
// that a step has enough to send.
constexpr int64_t kLayers = 4, kHidden = 512, kHeads = 8, kVocab = 8192, kSequence = 128;

// Compressed means ZeRO++'s codes for weights and gradients at stage 3, and 1-bit Adam at the
// stages below, which freezes after two steps.
Config config_of(int ranks, int stage, bool compressed) {
  Config c;
  c.micro_batch = 1;
  c.accumulation = 1;
  c.train_batch = ranks;
  c.compute = DS_DTYPE_BF16;
  c.zero.stage = stage;
  c.optimizer.lr = 1e-4;
  if (compressed && stage == 3) {
    c.zero.quantized_weights = c.zero.quantized_gradients = true;
    c.zero.gradient_bits = 4;
  } else if (compressed) {
    c.optimizer.type = "OneBitAdam";
    c.optimizer.freeze_step = 2;
  }
  return c;
}

Graph graph() {
  ModelConfig m;
  m.family = "gpt";
  m.layers = kLayers;
  m.hidden = kHidden;
  m.heads = kHeads;
  m.vocab = kVocab;
  m.positions = kSequence;
  return build_gpt(m, kSequence, kSequence);
}

int64_t received(const Engine& engine) {
  int64_t sum = 0;
  for (const auto& [name, count] : engine.runtime().ledger()) sum += count.bytes;
  return sum;
}

struct Measured {
  // Seconds of the best step.
  double seconds = 1e9;
  // Bytes of the last step.
  int64_t bytes = 0;
  // Bytes of a step before the freeze.
  int64_t first = 0;
};

Measured measure(Communicator& comm, int stage, bool compressed, int steps) {
  Engine engine(config_of(comm.size(), stage, compressed), graph(), comm, {});
  std::vector<int32_t> tokens(kSequence), targets(kSequence);
  for (size_t i = 0; i < tokens.size(); ++i) {
    auto words = RandomStream{1, 0, static_cast<uint32_t>(comm.rank()), 0}.block(i);
    tokens[i] = static_cast<int32_t>(words[0] % kVocab);
    targets[i] = static_cast<int32_t>(words[1] % kVocab);
  }
  Measured best;
  // The first two steps of 1-bit Adam are those of Adam.
  for (int s = 0; s < steps + 2; ++s) {
    InputView inputs[] = {{tokens.data(), DS_DTYPE_I32, kSequence},
                          {targets.data(), DS_DTYPE_I32, kSequence}};
    int64_t begin = now_ns(), bytes = received(engine);
    engine.train_batch(inputs);
    best.bytes = received(engine) - bytes;
    if (s < 2) best.first = best.bytes;
    if (s >= 2) best.seconds = std::min(best.seconds, static_cast<double>(now_ns() - begin) * 1e-9);
  }
  return best;
}

void as_rank(char** words) {
  CommOptions options;
  options.rank = std::atoi(words[0]);
  options.size = std::atoi(words[1]);
  auto comm = create_communicator(words[2], options);
  int stage = std::atoi(words[3]), steps = std::atoi(words[4]);
  for (bool compressed : {false, true}) {
    Measured m = measure(*comm, stage, compressed, steps);
    if (options.rank == 0) fmt::print("{} {} {}\n", m.seconds, m.bytes, m.first);
  }
}

}  // namespace
}  // namespace ds

int main(int argc, char** argv) {
  if (argc != 6) {
    fmt::print(stderr, "bench_onebit RANK RANKS URL STAGE STEPS\n");
    return 2;
  }
  try {
    ds::as_rank(argv + 1);
  } catch (const std::exception& error) {
    fmt::print(stderr, "bench_onebit: {}\n", error.what());
    return 1;
  }
  return 0;
}
