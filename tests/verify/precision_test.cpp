// Problem. A loss does not distinguish precisions: a loss in bf16 agrees with one in f32 to three
// digits, and the losses of two bf16 programs differ by as much. The results of layers distinguish
// them if their distance from the recorded numbers has a lower and an upper bound: above the upper
// bound the results are wrong, and below the lower bound the precision is higher than claimed.
//
// Evidence. Rounding errors add up like a random walk, so the relative distance of logits and of
// gradients (root mean square) is proportional to the roundoff of the type: 2^-9 in bf16, 2^-12 in
// fp16, 2^-24 in f32. The factor depends on the model. kRecorded contains the distances of torch
// 2.15 with Transformers from the same recorded numbers, with model.to(dtype) and with
// torch.autocast. When this was written, libds was within a factor of 1.25 of all of them. Bands of
// a factor of 1.6 in both directions do not overlap, because the roundoffs of bf16 and fp16 differ
// by a factor of 8.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "checkpoint/model_folder.h"
#include "diagnostics/feed.h"
#include "diagnostics/golden.h"
#include "engine/engine.h"
#include "nn/models/hf.h"
#include "support/models.h"
#include "support/ranks.h"

namespace ds::precision_test {
namespace {

struct Distances {
  double logits = 0, gradients = 0;
};

struct Recorded {
  const char* folder;
  Distances f16, bf16, autocast;
};
constexpr Recorded kRecorded[] = {
    {"gpt2", {1.49e-3, 3.04e-3}, {1.16e-2, 3.09e-2}, {9.27e-3, 1.63e-2}},
    {"llama", {2.58e-3, 4.40e-3}, {2.13e-2, 3.85e-2}, {1.64e-2, 2.88e-2}},
    {"qwen2", {2.78e-3, 5.09e-3}, {2.36e-2, 4.27e-2}, {1.78e-2, 3.93e-2}}};
constexpr double kFactor = 1.6, kMostOfF32 = 1e-5;

bool near(double found, double recorded) {
  return found >= recorded / kFactor && found <= recorded * kFactor;
}

// Returns whether `found` has the distances expected of a program in `type`.
bool takes(const Recorded& recorded, DType type, const Distances& found) {
  if (type == DS_DTYPE_F32) return found.logits < kMostOfF32 && found.gradients < kMostOfF32;
  const Distances& want = type == DS_DTYPE_F16 ? recorded.f16 : recorded.bf16;
  return near(found.logits, want.logits) && near(found.gradients, want.gradients);
}

// Two sums over many tensors: the squared differences from the recorded values, and the squared
// recorded values.
struct Distance {
  double off = 0, all = 0;
  void see(const std::vector<float>& got, const std::vector<float>& want) {
    ASSERT_EQ(got.size(), want.size());
    for (size_t i = 0; i < got.size(); ++i) {
      const double d = static_cast<double>(got[i]) - static_cast<double>(want[i]);
      off += d * d;
      all += static_cast<double>(want[i]) * static_cast<double>(want[i]);
    }
  }
  double relative() const { return std::sqrt(off / all); }
};

Distances distances(const char* name, DType compute, bool autocast = false) {
  const std::string folder = std::string(DS_SOURCE_DIR) + "/tests/data/models/" + name;
  const Golden golden(folder);
  const HfModel model = build_hf_model(folder, golden.batch.rows * golden.batch.tokens,
                                       golden.batch.tokens, HfMode::evaluation);
  Distances out;
  test::run_ranks(1, [&](Communicator& comm) {
    Config config = test::make_config(0, 1, 1);
    config.micro_batch = config.train_batch = golden.batch.rows;
    config.sequence = golden.batch.tokens;
    config.compute = compute;
    config.autocast.enabled = autocast;
    config.gradient_clipping = 0;
    config.loss_scale.loss_scale = 4096;
    Engine engine(config, model.graph, comm, {});
    engine.checkpoints().load_weights(folder);
    const Feed feed(model, {&golden.batch});
    Distance logits, gradients;
    logits.see(engine.infer(feed.views()).values, golden.logits());
    EXPECT_FALSE(engine.train_batch(feed.views()).skipped);
    for (ParamId p : engine.store().param_names().ids()) {
      gradients.see(engine.store().read_tensor(p, "grad"),
                    golden.grad(engine.store().param_names()[p]));
    }
    out = {logits.relative(), gradients.relative()};
  });
  return out;
}

TEST(Precision, IsRecognizedFromTheResultsOfLayers) {
  const DType types[] = {DS_DTYPE_F32, DS_DTYPE_F16, DS_DTYPE_BF16};
  for (const Recorded& recorded : kRecorded) {
    for (DType own : types) {
      const Distances found = distances(recorded.folder, own);
      for (DType other : types) {
        EXPECT_EQ(takes(recorded, other, found), other == own)
            << recorded.folder << " in " << dtype_name(own) << " held against " << dtype_name(other)
            << ": logits " << found.logits << ", gradients " << found.gradients;
      }
    }
  }
}

// torch_autocast rounds in the same places as torch.autocast, so its distance is the same; it is
// less than that of a program entirely in bf16.
TEST(Precision, AutocastHasTheErrorOfTorchAutocast) {
  for (const Recorded& recorded : kRecorded) {
    const Distances found = distances(recorded.folder, DS_DTYPE_F32, true);
    EXPECT_TRUE(near(found.logits, recorded.autocast.logits))
        << recorded.folder << " " << found.logits;
    EXPECT_TRUE(near(found.gradients, recorded.autocast.gradients))
        << recorded.folder << " " << found.gradients;
    const Distances bf16 = distances(recorded.folder, DS_DTYPE_BF16);
    EXPECT_LT(found.logits, bf16.logits) << recorded.folder;
    EXPECT_FALSE(takes(recorded, DS_DTYPE_F32, found) || takes(recorded, DS_DTYPE_F16, found));
  }
}

}  // namespace
}  // namespace ds::precision_test
