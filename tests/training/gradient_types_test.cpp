// Tests gradients that are communicated or summed in another type: which values are rounded, and
// equal bits over layouts.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "checkpoint/agree.h"
#include "core/base/half.h"
#include "core/config/loss_scaler.h"
#include "core/config/parse_config.h"
#include "engine/engine.h"
#include "support/ranks.h"
#include "support/same_bits.h"
#include "support/temp_folder.h"

namespace ds::gradient_types_test {
namespace {

using namespace test;

using Tensors = std::vector<std::vector<float>>;

float rounded(float x, DType dtype) {
  if (dtype == DS_DTYPE_BF16) return static_cast<float>(bf16(x));
  return dtype == DS_DTYPE_F16 ? static_cast<float>(f16(x)) : x;
}

// Returns the gradients of all parameters after one step.
Tensors gradients_of(const Point& p) {
  Tensors out;
  run_ranks(p.world, [&](Communicator& comm) {
    Engine engine(config_of(p), graph_of(p), comm, {});
    train_step(p, engine, 0);
    Tensors mine;
    for (size_t i = 0; i < engine.store().param_names().size(); ++i)
      mine.push_back(engine.store().read_tensor(ParamId(i), "grad"));
    if (comm.rank() == 0) out = mine;
  });
  return out;
}

Point plain(int world, int64_t leaves) {
  return {.world = world, .leaves = leaves, .compute = DS_DTYPE_F32, .dropout = 0, .clipping = 0};
}

// Even with one rank, each leaf is rounded to the communication type, or the sum to the
// accumulation type.
TEST(GradientTypes, ALeafIsRoundedOnce) {
  const Tensors exact = gradients_of(plain(1, 1));
  for (DType dtype : {DS_DTYPE_BF16, DS_DTYPE_F16}) {
    for (bool sums : {false, true}) {
      Point p = plain(1, 1);
      (sums ? p.grad_accum : p.communication) = dtype;
      const Tensors got = gradients_of(p);
      int64_t changed = 0;
      for (size_t t = 0; t < exact.size(); ++t) {
        for (size_t e = 0; e < exact[t].size(); ++e) {
          ASSERT_EQ(got[t][e], rounded(exact[t][e], dtype))
              << p.name() << " tensor " << t << " element " << e;
          changed += got[t][e] != exact[t][e] ? 1 : 0;
        }
      }
      EXPECT_GT(changed, 1000) << p.name();
    }
  }
}

// Sums over ranks are computed in f32: only the leaves are rounded, or only the finished sum.
TEST(GradientTypes, TheSumOverRanksIsF32) {
  const Tensors exact = gradients_of(plain(2, 2));
  Point p = plain(2, 2);
  p.grad_accum = DS_DTYPE_BF16;
  const Tensors summed = gradients_of(p);
  p = plain(2, 2);
  p.communication = DS_DTYPE_BF16;
  const Tensors sent = gradients_of(p);
  int64_t wider = 0;
  for (size_t t = 0; t < exact.size(); ++t) {
    for (size_t e = 0; e < exact[t].size(); ++e) {
      ASSERT_EQ(summed[t][e], rounded(exact[t][e], DS_DTYPE_BF16)) << t << " " << e;
      wider += sent[t][e] != rounded(sent[t][e], DS_DTYPE_BF16) ? 1 : 0;
    }
  }
  EXPECT_GT(wider, 1000);
}

void expect_alike(const Point& base, const std::vector<int>& stages, int64_t& runs) {
  const std::string want = train_threads(base, 5).bits();
  int i = 0;
  for (int stage : stages) {
    for (Tier tier : {Tier::device, Tier::host, Tier::nvme}) {
      ++i;
      Point p = base;
      p.stage = stage;
      p.tier = tier;
      p.threads = 1 + i % 2;
      p.overlap = i % 3 != 0;
      if (i % 4 == 0) p.chaos = static_cast<uint64_t>(i);
      if (i % 4 == 2) p.separate = static_cast<uint64_t>(i);
      EXPECT_EQ(train_threads(p, 5).bits(), want) << p.name();
      ++runs;
    }
  }
}

TEST(GradientTypes, HaveTheSameBitsOverStagesTiersAndDevices) {
  int64_t runs = 0;
  Point sent{.leaves = 6, .compute = DS_DTYPE_F32, .communication = DS_DTYPE_F16};
  sent.world = 3;
  expect_alike(sent, {0, 1, 2, 3}, runs);
  Point summed{.compute = DS_DTYPE_BF16, .grad_accum = DS_DTYPE_BF16};
  expect_alike(summed, {0, 1, 2, 3}, runs);
  Point both{.compute = DS_DTYPE_F16,
             .optimizer = "Lamb",
             .communication = DS_DTYPE_BF16,
             .grad_accum = DS_DTYPE_F16};
  expect_alike(both, {1, 3}, runs);
  EXPECT_EQ(runs, 30);
}

TEST(GradientTypes, RoundingDoesNotDependOnRanksOrRows) {
  Point p{.world = 1,
          .reproducible = true,
          .leaves = 4,
          .compute = DS_DTYPE_F32,
          .communication = DS_DTYPE_BF16};
  const std::string want = train_threads(p, 5).bits();
  for (int world : {2, 4}) {
    for (bool sparse : {false, true}) {
      p.world = world;
      p.stage = world == 2 ? 2 : 3;
      p.sparse = sparse;
      p.tied = true;
      EXPECT_EQ(train_threads(p, 5).bits(), want) << p.name();
    }
  }
  Point untied = p;
  untied.tied = false;
  // The vocabulary is so large that rows need fewer bytes than the whole gradient.
  untied.vocab = 2003;
  untied.sparse = false;
  const std::string whole = train_threads(untied, 3).bits();
  untied.sparse = true;
  EXPECT_EQ(train_threads(untied, 3).bits(), whole);
  untied.communication = DS_DTYPE_NONE;
  EXPECT_NE(train_threads(untied, 3).bits(), whole);
}

// bf16 leaves halve the bytes sent, and bf16 sums halve their memory.
TEST(GradientTypes, HalveTrafficAndMemory) {
  auto bytes = [](const Point& p, const char* op) {
    return train_threads(p, 2).ledgers[0].steps[op].bytes;
  };
  Point p{.stage = 2, .compute = DS_DTYPE_F32};
  const int64_t wide = bytes(p, "reduce_scatter");
  const int64_t sums = train_threads(p, 1).ledgers[0].state[{Tier::device, "grad"}];
  p.communication = DS_DTYPE_BF16;
  EXPECT_EQ(bytes(p, "reduce_scatter") * 2, wide);
  p.grad_accum = DS_DTYPE_BF16;
  EXPECT_EQ((train_threads(p, 1).ledgers[0].state[{Tier::device, "grad"}] * 2), sums);
}

// Under f16 autocast, masters and gradients are f32 and matrix products f16. The loss scale is
// searched for, and a resumed run continues with it.
TEST(GradientTypes, Float16AutocastHasTorchsScale) {
  Point p{.stage = 1, .compute = DS_DTYPE_F32, .autocast = "f16"};
  const Config parsed = parse_config(Json::parse(R"({"train_micro_batch_size_per_gpu": 1,
                      "torch_autocast": {"enabled": true, "dtype": "float16"}})"),
                                     1);
  EXPECT_TRUE(parsed.scales_loss());
  EXPECT_EQ(first_scaler(parsed.loss_scale).scale, 65536);
  EXPECT_EQ(parsed.loss_scale.window, 2000);
  EXPECT_TRUE(parsed.loss_scale.from_first);
  auto config = [&] {
    Config c = config_of(p);
    c.loss_scale = parsed.loss_scale;
    // The initial scale is beyond the range of f16.
    c.loss_scale.initial_scale_power = 24;
    c.loss_scale.window = 3;
    return c;
  };
  run_ranks(2, [&](Communicator& comm) {
    Engine straight(config(), graph_of(p), comm, {}), first(config(), graph_of(p), comm, {});
    std::string unbroken, broken;
    int64_t skipped = 0;
    auto step = [&](Engine& engine, int64_t s) {
      StepResult r = train_step(p, engine, s);
      skipped += r.skipped ? 1 : 0;
      return fmt::format("{} {} {}\n", r.loss, r.loss_scale, r.skipped);
    };
    for (int64_t s = 0; s < 14; ++s) unbroken += step(straight, s);
    EXPECT_GE(skipped, 3) << unbroken;
    EXPECT_LE(skipped, 9) << unbroken;
    for (int64_t s = 0; s < 7; ++s) broken += step(first, s);
    std::string folder = on_root(comm, "folder", [] { return scratch_folder() + "/autocast"; });
    first.checkpoints().save(folder, Json(), {});
    Engine second(config(), graph_of(p), comm, {});
    second.checkpoints().load(folder);
    for (int64_t s = 7; s < 14; ++s) broken += step(second, s);
    EXPECT_EQ(broken, unbroken);
    EXPECT_EQ(state_hash(second.store()), state_hash(straight.store()));
  });
}

}  // namespace
}  // namespace ds::gradient_types_test
