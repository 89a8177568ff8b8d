// Tests losses averaged over tokens: a step is the mean over all targets of its micro-steps and
// ranks, however it is divided.
//
// DS_SEEDS=17 runs only seed 17 of the random steps, and DS_SEEDS=1000:5000 seeds 1000 to 4999.
#include "training/loss_average.h"

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <numeric>
#include <set>
#include <string>
#include <vector>

#include "core/base/json.h"
#include "engine/engine.h"
#include "io/file.h"
#include "nn/models/hf.h"
#include "support/dice.h"
#include "support/errors.h"
#include "support/models.h"
#include "support/ranks.h"
#include "support/same_bits.h"

namespace ds::test::loss_average_test {
namespace {

using namespace loss_average;

TEST(LossAverage, EveryDivisionOfAStepHasTheSameMean) {
  const std::vector<int64_t> counts = {1, 2, 4, 8, 0, 3, 8, 1};
  const std::vector<Text> texts = texts_of(counts, 2);
  const Steps want = train_as_one(8, texts);
  for (const Cut& cut :
       {Cut{8, 1, 1}, {1, 8, 1}, {2, 4, 1}, {4, 1, 2}, {1, 2, 4}, {2, 1, 4}, {1, 1, 8}}) {
    const std::string name = fmt::format("{} x {} x {}", cut.micro, cut.accumulation, cut.ranks);
    for (int stage : {0, 3}) {
      Config config = plain_config(cut, true);
      config.zero.stage = stage;
      const Steps got = train(config, cut, graph_of(cut.micro), texts);
      for (size_t s = 0; s < texts.size(); ++s) {
        EXPECT_NEAR(got.losses[s], want.losses[s], 2e-6 * want.losses[s]) << name;
        EXPECT_NEAR(got.norms[s], want.norms[s], 1e-5 * want.norms[s]) << name;
      }
      EXPECT_LT(distance(got.gradient, want.gradient), 1e-5) << name;
      EXPECT_LT(distance(got.masters, want.masters), 1e-6) << name;
    }
    if (cut.micro == 8) continue;
    const Steps other = train(plain_config(cut, false), cut, graph_of(cut.micro), texts);
    EXPECT_GT(std::abs(other.norms[0] - want.norms[0]), 0.02 * want.norms[0])
        << name << " by micro-batches";
  }
}

// Covers every family: causal models, and one whose targets are masked tokens. Mixtral's router
// loss is a mean per micro-batch, so it is switched off here.
TEST(LossAverage, EveryFamilyHasTheSameMeanForEveryDivision) {
  const std::vector<Text> texts = texts_of({1, 8, 0, 3}, 1);
  for (const char* family : {"bert", "gemma2", "gpt2", "gpt_neox", "llama", "mistral", "mixtral",
                             "opt", "phi3", "qwen2", "qwen3"}) {
    const std::string path =
        fmt::format("{}/tests/data/models/{}/config.json", DS_SOURCE_DIR, family);
    Json model = Json::parse(read_file(path), path);
    if (std::string(family) == "mixtral") model.set("output_router_logits", false);
    const Cut one{4, 1, 1}, cut{1, 2, 2};
    const Steps want =
        train(plain_config(one, false), one, hf_model(model, 4 * kSeq, kSeq).graph, texts);
    Config config = plain_config(cut, true);
    config.zero.stage = 3;
    const Steps got = train(config, cut, hf_model(model, kSeq, kSeq).graph, texts);
    EXPECT_NEAR(got.losses[0], want.losses[0], 5e-6 * want.losses[0]) << family;
    EXPECT_NEAR(got.norms[0], want.norms[0], 5e-5 * want.norms[0]) << family;
    EXPECT_LT(distance(got.gradient, want.gradient), 5e-5) << family;
  }
}

// Draws a division, a layout and features, and compares the step with a single micro-batch. Returns
// a description of the differences, or "" if they are small.
std::string run_random_step(uint64_t seed) {
  Dice dice(seed, 3);
  Cut cut;
  cut.ranks = static_cast<int>(dice.pick({1, 2, 2, 3, 4, 4}));
  cut.accumulation = 1 + dice.below(4);
  cut.micro = 1 + dice.below(3);
  const int64_t sequences = cut.micro * cut.accumulation * cut.ranks;
  std::vector<int64_t> counts;
  for (int64_t s = 0; s < sequences; ++s)
    counts.push_back(dice.one_in(4) ? 0 : 1 + dice.below(kSeq));
  counts[static_cast<size_t>(dice.below(sequences))] = kSeq;
  Config c = plain_config(cut, true);
  c.zero.stage = static_cast<int>(dice.below(4));
  c.zero.optimizer_tier = dice.pick({Tier::device, Tier::host, Tier::nvme});
  if (c.zero.stage == 3) c.zero.param_tier = dice.pick({Tier::device, Tier::host});
  c.zero.nvme_path = scratch_folder();
  c.zero.reduce_bucket_size = dice.pick<int64_t>({500, 5000, 1 << 20});
  c.zero.param_persistence_threshold = dice.pick<int64_t>({0, 300});
  c.zero.overlap_comm = dice.one_in(2);
  if (cut.ranks == 4) c.nodes = dice.pick<int64_t>({0, 2});
  if (cut.ranks == 4 && c.zero.stage == 3 && dice.one_in(2))
    (dice.one_in(2) ? c.zero.mics_shard_size : c.zero.hpz_partition_size) = 2;
  const int64_t leaves = cut.accumulation * cut.ranks;
  c.reproducible = (leaves & (leaves - 1)) == 0 && dice.one_in(2);
  c.compute = dice.pick({DS_DTYPE_F32, DS_DTYPE_F32, DS_DTYPE_BF16, DS_DTYPE_F16});
  if (dice.one_in(2)) c.loss_scale.loss_scale = 1024;
  c.loss_scale.initial_scale_power = 10;
  c.fused_head = dice.pick({"never", "always"});
  c.recompute = dice.pick({"none", "cheap", "layers"});
  const bool tied = dice.one_in(2);
  c.sparse_gradients = !tied && dice.one_in(2);
  const bool codes = c.zero.stage >= 2 && dice.one_in(4);
  if (codes) c.zero.quantized_gradients = true;
  if (codes) c.zero.gradient_bits = 8;
  EngineOptions options;
  options.threads = static_cast<int>(1 + dice.below(2));
  options.programs.written_out = dice.pick<int64_t>({0, 16});
  if (c.device == "cpu" && dice.one_in(3)) options.chaos_seed = seed;
  const std::vector<Text> texts{Text(counts, seed)};
  const Steps want = train_as_one(sequences, texts, tied),
              got = train(c, cut, graph_of(cut.micro, tied), texts, options);
  const double eps = codes                       ? 0.05
                     : c.compute == DS_DTYPE_F32 ? 2e-5
                     : c.compute == DS_DTYPE_F16 ? 5e-3
                                                 : 4e-2;
  const double loss = std::abs(got.losses[0] / want.losses[0] - 1),
               norm = std::abs(got.norms[0] / want.norms[0] - 1),
               gradient = distance(got.gradient, want.gradient);
  if (loss <= eps && norm <= eps && gradient <= eps) return "";
  return fmt::format(
      "seed {}: {} x {} x {}, stage {}, {}: loss off by {}, norm by {}, gradient by {}", seed,
      cut.micro, cut.accumulation, cut.ranks, c.zero.stage, dtype_name(c.compute), loss, norm,
      gradient);
}

TEST(LossAverage, RandomStepsHaveTheSameMeanForEveryDivision) {
  uint64_t first = 0, end = 24;
  if (const char* wanted = std::getenv("DS_SEEDS")) {
    char* rest = nullptr;
    first = std::strtoull(wanted, &rest, 10);
    end = *rest == ':' ? std::strtoull(rest + 1, nullptr, 10) : first + 1;
  }
  for (uint64_t seed = first; seed < end; ++seed) EXPECT_EQ(run_random_step(seed), "");
}

// Covers every stage and tier, the chaos device and the separate device, with programs that are
// written out and programs that repeat a micro-step.
TEST(LossAverage, LayoutsHaveTheSameBits) {
  for (const char* optimizer : {"AdamW", "Muon"}) {
    std::set<std::string> bits;
    for (int i = 0; i < 5; ++i) {
      Point p{.stage = i % 4, .by_tokens = true, .leaves = 8};
      p.optimizer = optimizer;
      p.tier = i < 2 ? Tier::device : i < 4 ? Tier::host : Tier::nvme;
      p.threads = 1 + i % 2;
      p.written_out = i % 2 == 0 ? 16 : 0;
      if (i == 3) p.chaos = 2;
      if (i == 2) p.separate = 3;
      bits.insert(train_threads(p, 3).bits());
    }
    EXPECT_EQ(bits.size(), 1u) << optimizer;
    Point other{.leaves = 8};
    other.optimizer = optimizer;
    EXPECT_FALSE(bits.contains(train_threads(other, 3).bits())) << optimizer;
  }
}

// Bits are equal for any number of ranks if sums are one tree over all leaves.
TEST(LossAverage, IsReproducibleOverRanks) {
  std::set<std::string> bits;
  for (int world : {1, 2, 4}) {
    Point p{.stage = world - 1, .world = world, .reproducible = true, .by_tokens = true};
    bits.insert(train_threads(p, 3).bits());
  }
  EXPECT_EQ(bits.size(), 1u);
}

// Under 1-bit optimizers and compressed gradients, each rank keeps the gradients of its own
// targets. Their mean over ranks must be the gradient that other optimizers use.
TEST(LossAverage, GradientsKeptByTheirRankAreWeighted) {
  const std::vector<int64_t> counts = {1, 8, 2, 0, 5, 3, 8, 8};
  for (const char* optimizer : {"OneBitAdam", "OneBitLamb"}) {
    const std::vector<Text> texts = texts_of(counts, 3);
    std::vector<std::vector<double>> losses;
    for (const Cut& cut : {Cut{8, 1, 1}, {2, 2, 2}, {2, 1, 4}}) {
      Config c = plain_config(cut, true);
      c.optimizer.type = optimizer;
      c.optimizer.lr = 1e-3;
      c.optimizer.freeze_step = 100;
      losses.push_back(train(c, cut, graph_of(cut.micro), texts).losses);
    }
    for (const std::vector<double>& l : losses) {
      for (size_t s = 0; s < l.size(); ++s)
        EXPECT_NEAR(l[s], losses[0][s], 2e-5 * l[s]) << optimizer;
    }
  }
  // The mean of the ranks' int8 codes is the gradient, up to rounding.
  const std::vector<Text> texts = texts_of(counts, 1);
  const Steps want = train_as_one(8, texts);
  const Cut cut{2, 1, 4};
  Config c = plain_config(cut, true);
  c.gradient_compression.type = "int8";
  const Steps got = train(c, cut, graph_of(cut.micro), texts);
  double moved = 0, off = 0;
  const Steps start = train(plain_config({8, 1, 1}, false), {8, 1, 1}, graph_of(8), {});
  for (size_t i = 0; i < want.masters.size(); ++i) {
    moved += std::pow(double(want.masters[i]) - start.masters[i], 2);
    off += std::pow(double(want.masters[i]) - got.masters[i], 2);
  }
  EXPECT_LT(std::sqrt(off / moved), 0.05);
}

// A micro-batch without targets has weight 0. A step without any targets is skipped: it changes no
// parameter, returns the reason and keeps the loss scale.
TEST(LossAverage, AStepWithoutTargetsIsSkipped) {
  const Cut cut{1, 2, 2};
  for (bool checked : {true, false}) {
    for (DType compute : {DS_DTYPE_F32, DS_DTYPE_F16, DS_DTYPE_BF16}) {
      Config c = plain_config(cut, true);
      c.zero.stage = 2;
      c.compute = compute;
      c.check_grad_overflow = checked;
      const Text some({0, 8, 0, 3}, 1), none({0, 0, 0, 0}, 2);
      run_ranks(2, [&](Communicator& comm) {
        Engine engine(c, graph_of(1), comm, {});
        auto step = [&](const Text& text) {
          for (int64_t m = 0; m < 2; ++m) {
            engine.forward(text.views(m * 2 + comm.rank(), 1));
            engine.backward();
          }
          return engine.step();
        };
        EXPECT_FALSE(step(some).skipped);
        const std::vector<float> before = all_of(engine.store(), "master");
        const double scale = engine.control().scaler().scale;
        const StepResult r = step(none);
        EXPECT_TRUE(r.skipped);
        EXPECT_NE(r.reason.find("step 2 is skipped: none of its micro-batches has a target"),
                  std::string::npos)
            << r.reason;
        EXPECT_EQ(all_of(engine.store(), "master"), before);
        EXPECT_EQ(engine.control().scaler().scale, scale);
        EXPECT_EQ(r.updates, 1);
        EXPECT_FALSE(step(some).skipped);
      });
    }
  }
}

// The dynamic scale of f16 is found through overflows, as it is without weights.
TEST(LossAverage, TheLossScaleFallsAndTheStepIsTheMean) {
  const std::vector<int64_t> counts = {1, 8, 2, 0};
  const std::vector<Text> texts = texts_of(counts, 1);
  const Steps want = train_as_one(4, texts);
  const Cut cut{1, 2, 2};
  Config c = plain_config(cut, true);
  c.compute = DS_DTYPE_F16;
  c.loss_scale.initial_scale_power = 30;
  c.loss_scale.hysteresis = 1;
  run_ranks(2, [&](Communicator& comm) {
    Engine engine(c, graph_of(1), comm, {});
    StepResult r;
    int skipped = -1;
    do {
      for (int64_t m = 0; m < 2; ++m) {
        engine.forward(texts[0].views(m * 2 + comm.rank(), 1));
        engine.backward();
      }
      r = engine.step();
    } while (++skipped < 30 && r.skipped);
    EXPECT_GT(skipped, 2);
    EXPECT_FALSE(r.skipped);
    EXPECT_NEAR(r.grad_norm, want.norms[0], 5e-3 * want.norms[0]);
  });
}

// Ranks that have joined contribute neither loss nor weight.
TEST(LossAverage, JoinedRanksContributeNothing) {
  const std::vector<int64_t> counts = {1, 8, 2, 0};
  const std::vector<Text> texts = texts_of(counts, 1);
  const Steps want = train_as_one(4, texts);
  const Cut cut{1, 4, 1};
  for (int stage : {0, 2, 3}) {
    Config c = plain_config({1, 4, 3}, true);
    c.zero.stage = stage;
    run_ranks(3, [&](Communicator& comm) {
      Engine engine(c, graph_of(1), comm, {});
      if (comm.rank() == 1) {
        const StepResult r = engine.train_batch(texts[0].views(0, cut.accumulation));
        EXPECT_NEAR(r.loss, want.losses[0], 2e-6 * r.loss);
        EXPECT_NEAR(r.grad_norm, want.norms[0], 1e-5 * r.grad_norm);
      }
      EXPECT_EQ(engine.join(), comm.rank() == 1 ? 0 : 1);
      EXPECT_LT(distance(all_of(engine.store(), "master"), want.masters), 1e-6);
    });
  }
}

TEST(LossAverage, EvaluationWeighsRanksByTargets) {
  const Text text({1, 8, 0}, 3), none({0, 0, 0}, 3);
  double want = 0;
  run_ranks(1, [&](Communicator& comm) {
    Engine engine(plain_config({3, 1, 1}, false), graph_of(3), comm, {});
    want = engine.eval_batch(text.views(0, 3));
  });
  for (bool by_tokens : {true, false}) {
    run_ranks(3, [&](Communicator& comm) {
      Engine engine(plain_config({1, 1, 3}, by_tokens), graph_of(1), comm, {});
      const double got = engine.eval_batch(text.views(comm.rank(), 1));
      EXPECT_EQ(std::abs(got - want) <= 1e-6 * want, by_tokens) << got << " for " << want;
      EXPECT_EQ(engine.eval_batch(none.views(comm.rank(), 1)), 0);
    });
  }
}

// Returns a graph whose loss is half a cross-entropy with this reduction plus another term. With
// the reduction "none", the loss is a mean squared error alone.
Graph with_term(const char* reduction, bool second_targets = false) {
  Graph g;
  g.name = "terms";
  g.bound = kSeq;
  ValueId tokens = g.add_input("tokens", {DS_DTYPE_I32, Shape{Dim::n()}});
  ValueId targets = g.add_input("targets", {DS_DTYPE_I32, Shape{Dim::n()}});
  ValueId table = g.add_param("wte", {DS_DTYPE_F32, Shape{kVocab, kWidth}}, {"normal", 0.5});
  ValueId head = g.add_param("head", {DS_DTYPE_F32, Shape{kVocab, kWidth}}, {"normal", 0.5});
  ValueId x = g.add("embedding", {table, tokens});
  ValueId logits = g.add("linear", {x, head});
  ValueId entropy =
      g.add("cross_entropy", {logits, targets}, {{"reduction", std::string(reduction)}}, "entropy");
  ValueId term = second_targets ? g.add("cross_entropy", {logits, tokens}, {}, "term")
                                : g.add("mse", {x, g.add("tanh", {x})}, {}, "term");
  ValueId loss = entropy;
  if (std::string(reduction) != "none")
    loss = g.add("add", {g.add("scale", {entropy}, {{"factor", 0.5}}), term}, {}, "total");
  if (std::string(reduction) == "none") loss = g.add("mse", {x, x}, {}, "total");
  g.add_output("loss", loss);
  g.add_output("logits", logits);
  return g;
}

TEST(LossAverage, OtherLossTermsAreWeightedByTargets) {
  const std::vector<int64_t> counts = {1, 8, 2, 5};
  const Text text(counts, 9);
  const Cut cut{1, 2, 2};
  run_ranks(2, [&](Communicator& comm) {
    Engine engine(plain_config(cut, true), with_term("mean"), comm, {});
    std::vector<double> own;
    for (int64_t m = 0; m < 2; ++m) {
      own.push_back(engine.forward(text.views(m * 2 + comm.rank(), 1)));
      engine.backward();
    }
    std::vector<double> all(4);
    comm.all_gather(own.data(), all.data(), 2 * sizeof(double), "losses");
    double sum = 0;
    for (size_t l = 0; l < 4; ++l) sum += static_cast<double>(counts[l]) * all[l % 2 * 2 + l / 2];
    EXPECT_NEAR(engine.step().loss, sum / static_cast<double>(text.count), 1e-6);
  });
}

TEST(LossAverage, LossesThatAreNotMeansOverTargetsAreRefusedByName) {
  auto comm = create_communicator("self", {});
  auto refused = [&](const Graph& g, const std::vector<std::string>& parts) {
    expect_names(message_of([&] { Engine(plain_config({}, true), g, *comm, {}); }, DS_ERROR_CONFIG),
                 [&] {
                   std::vector<std::string> all{
                       "loss_average: \"tokens\" needs a loss that is the mean of cross_entropy"};
                   all.insert(all.end(), parts.begin(), parts.end());
                   return all;
                 }());
  };
  refused(make_mlp(1, 4, 4), {"output 0 'loss' of graph 'mlp' is computed by mse"});
  refused(with_term("sum"), {"graph 'terms'", "cross_entropy"});
  refused(with_term("none"), {"is computed by mse"});
  refused(with_term("mean", true), {"has means over the targets", "%tokens", "%targets"});
}

TEST(LossAverage, IsInTheNumericsKeyAndThePlan) {
  auto comm = create_communicator("self", {});
  Engine by_batch(plain_config({}, false), graph_of(1), *comm, {});
  Engine by_tokens(plain_config({}, true), graph_of(1), *comm, {});
  EXPECT_EQ(by_batch.checkpoints().numerics_key().find("loss_average"), std::string::npos);
  expect_names(by_tokens.checkpoints().numerics_key(), {"loss_average tokens"});
  EXPECT_NE(by_batch.plan().hash, by_tokens.plan().hash);
  EXPECT_EQ(by_batch.print_plan().find("count_targets"), std::string::npos);
}

}  // namespace
}  // namespace ds::test::loss_average_test
