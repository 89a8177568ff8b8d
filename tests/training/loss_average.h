// Training steps over texts in which only some tokens have targets. A step can be divided among
// micro-steps and ranks in any way. Used by tests of losses averaged over tokens.
#pragma once
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <vector>

#include "engine/engine.h"
#include "support/dice.h"
#include "support/models.h"
#include "support/ranks.h"

namespace ds::test::loss_average {

inline constexpr int64_t kSeq = 8, kWidth = 16, kVocab = 23;

// Sequences of tokens and targets. Sequence s has counts[s] targets.
struct Text {
  std::vector<int32_t> tokens, targets, mask, types;
  int64_t count = 0;

  Text(const std::vector<int64_t>& counts, uint64_t seed) {
    Dice dice(seed, 7);
    for (int64_t has : counts) {
      for (int64_t t = 0; t < kSeq; ++t) {
        tokens.push_back(static_cast<int32_t>(dice.below(kVocab)));
        const auto target = static_cast<int32_t>(dice.below(kVocab));
        targets.push_back(t >= kSeq - has ? target : -100);
      }
      count += has;
    }
    mask.assign(tokens.size(), 1);
    types.assign(tokens.size(), 0);
  }
  // Returns `sequences` sequences as the first `inputs` inputs of a graph.
  std::vector<InputView> views(int64_t first, int64_t sequences, size_t inputs = 2) const {
    std::vector<InputView> out;
    for (const std::vector<int32_t>* ids : {&tokens, &targets, &mask, &types})
      out.push_back({ids->data() + first * kSeq, DS_DTYPE_I32, sequences * kSeq});
    out.resize(inputs);
    return out;
  }
};

// A division of a step of micro * accumulation * ranks sequences.
struct Cut {
  int64_t micro = 1, accumulation = 1;
  int ranks = 1;
};

// Results of a few steps.
struct Steps {
  std::vector<double> losses, norms;
  // The gradients of all parameters in the first step. Empty if each rank keeps its own gradients.
  std::vector<float> gradient;
  std::vector<float> masters;
};

inline Config plain_config(const Cut& cut, bool by_tokens) {
  Config c = make_config(0, cut.accumulation, cut.ranks);
  c.micro_batch = cut.micro;
  c.train_batch = cut.micro * cut.accumulation * cut.ranks;
  c.optimizer.type = "SGD";
  c.optimizer.lr = 0.1;
  c.optimizer.weight_decay = 0;
  c.gradient_clipping = 0;
  if (by_tokens) c.loss_average = "tokens";
  return c;
}

inline Graph graph_of(int64_t micro, bool tied = true) {
  return make_tiny_gpt(1, kWidth, 2, kVocab, kSeq, micro * kSeq, 0, tied);
}

inline std::vector<float> all_of(StateStore& store, const char* kind) {
  std::vector<float> out;
  for (size_t p = 0; p < store.param_names().size(); ++p) {
    std::vector<float> values = store.read_tensor(ParamId(p), kind);
    out.insert(out.end(), values.begin(), values.end());
  }
  return out;
}

// Trains one step for each text. Leaf l (micro-step * ranks + rank) has `micro` sequences, the
// first of which is l * micro.
inline Steps train(const Config& config, const Cut& cut, const Graph& graph,
                   const std::vector<Text>& texts, const EngineOptions& options = {}) {
  Steps out;
  run_ranks(cut.ranks, [&](Communicator& comm) {
    Engine engine(config, graph, comm, options);
    Steps mine;
    for (const Text& text : texts) {
      for (int64_t m = 0; m < cut.accumulation; ++m) {
        engine.forward(
            text.views((m * cut.ranks + comm.rank()) * cut.micro, cut.micro, graph.inputs.size()));
        engine.backward();
      }
      const bool whole = !config.optimizer.compressed() && !config.gradient_compression.on();
      if (mine.losses.empty() && whole) mine.gradient = all_of(engine.store(), "grad");
      StepResult r = engine.step();
      EXPECT_FALSE(r.skipped) << r.reason;
      mine.losses.push_back(r.loss);
      mine.norms.push_back(r.grad_norm);
    }
    mine.masters = all_of(engine.store(), "master");
    if (comm.rank() == 0) out = mine;
  });
  return out;
}

// Trains the same steps as one micro-batch on one rank, whose mean is by definition over all
// targets.
inline Steps train_as_one(int64_t sequences, const std::vector<Text>& texts, bool tied = true) {
  const Cut one{sequences, 1, 1};
  return train(plain_config(one, false), one, graph_of(sequences, tied), texts);
}

inline double distance(const std::vector<float>& a, const std::vector<float>& b) {
  double sum = 0, all = 0;
  EXPECT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    sum += (double(a[i]) - b[i]) * (double(a[i]) - b[i]);
    all += double(b[i]) * b[i];
  }
  return std::sqrt(sum / all);
}

inline std::vector<Text> texts_of(const std::vector<int64_t>& counts, int steps) {
  std::vector<Text> out;
  for (int s = 0; s < steps; ++s) out.emplace_back(counts, static_cast<uint64_t>(40 + s));
  return out;
}

}  // namespace ds::test::loss_average
