// Tests classes of parameters. Most gradients are summed over all ranks along `data`, and gradients
// of experts only over the ranks that hold the same experts. Both sums are divided by the number of
// leaves of the step, and the norm includes every parameter once. The expected values come from
// training in f64 over all leaves.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "core/program/mesh.h"
#include "engine/checkpoints.h"
#include "engine/engine.h"
#include "support/dice.h"
#include "support/errors.h"
#include "support/models.h"
#include "support/ranks.h"
#include "support/temp_folder.h"

namespace ds::test::classes_test {
namespace {

constexpr int64_t kRows = 3;
constexpr double kLearningRate = 0.2;

struct Case {
  int64_t width = 5, accumulation = 1;
  int experts = 1, copies = 1, replicas = 1, stage = 0;
  bool expert_first = true, reproducible = false, boundary = false;
  Tier tier = Tier::device;
  double clipping = 0;

  int data() const { return experts * copies; }
  int64_t leaves() const { return accumulation * data(); }
  Mesh mesh() const {
    Mesh::Axis e{kExpert, experts}, c{kExpertData, copies}, r{"replica", replicas};
    return expert_first ? Mesh({e, c, r}) : Mesh({r, c, e});
  }
  std::string name() const {
    return mesh().name() + " width " + std::to_string(width) + " stage " + std::to_string(stage) +
           " tier " + std::to_string(static_cast<int>(tier)) + " accumulation " +
           std::to_string(accumulation) +
           (reproducible ? " reproducible"
            : boundary   ? " boundary"
                         : "") +
           (clipping > 0 ? " clipped" : "");
  }
};

Case draw(uint64_t seed) {
  Dice dice(seed);
  Case c;
  c.width = dice.pick<int64_t>({5, 17, 20});
  c.accumulation = 1 + dice.below(3);
  c.experts = static_cast<int>(1 + dice.below(3));
  c.copies = static_cast<int>(1 + dice.below(3));
  c.replicas = c.data() <= 4 && dice.one_in(3) ? 2 : 1;
  c.stage = static_cast<int>(dice.below(4));
  c.expert_first = dice.one_in(2);
  c.reproducible = dice.one_in(2);
  c.tier = c.stage == 0 ? Tier::device : dice.pick({Tier::device, Tier::host, Tier::nvme});
  c.clipping = dice.one_in(2) ? 0.05 : 0;
  c.boundary = c.stage < 2 && !c.reproducible && dice.one_in(2);
  return c;
}

Config config_of(const Case& c, const std::string& folder) {
  Config out = make_config(c.stage, c.accumulation, c.data());
  out.reproducible = c.reproducible;
  if (c.boundary) out.reduction = "boundary";
  out.gradient_clipping = c.clipping;
  out.optimizer = {.type = "SGD", .lr = kLearningRate};
  out.zero.optimizer_tier = c.tier;
  out.zero.param_tier = c.stage == 3 ? c.tier : Tier::device;
  out.zero.param_persistence_threshold = 30;
  out.emulate_tiers = true;
  out.zero.nvme_path = folder;
  return out;
}

// Returns the graph of y = x dense^T + x mine^T, where `mine` are the rows of `experts` that belong
// to coordinate `expert`.
Graph graph_of(const Case& c, int expert) {
  Graph g;
  g.bound = kRows;
  Shape square{c.width, c.width};
  ValueId x = g.add_input("x", {DS_DTYPE_F32, {Dim::n(), c.width}});
  ValueId target = g.add_input("target", {DS_DTYPE_F32, {Dim::n(), c.width}});
  ValueId dense = g.add_param("dense", {DS_DTYPE_F32, square}, {"normal", 0.3});
  ValueId mine = g.add_param("experts", {DS_DTYPE_F32, square}, {"normal", 0.3});
  g.params.back().reduced_over = {kExpertData};
  g.params.back().slice =
      ParamSlice{{c.experts * c.width, c.width}, 0, {{expert * c.width, c.width}}, {kExpert}};
  g.add_output(
      "loss", g.add("mse", {g.add("add", {g.add("linear", {x, dense}), g.add("linear", {x, mine})}),
                            target}));
  return g;
}

float value_of(int64_t leaf, int64_t step, int64_t i, int64_t salt) {
  return static_cast<float>(((leaf * 131 + step * 17 + i) * salt) % 29) / 29.0f - 0.4f;
}

// A reference that trains the same steps in double, leaf by leaf.
struct Reference {
  explicit Reference(const Case& which) : c(which) {}

  void step(int64_t number) {
    const auto w = static_cast<size_t>(c.width);
    std::vector<double> d_dense(dense.size(), 0), d_experts(experts.size(), 0);
    for (int64_t leaf = 0; leaf < c.leaves(); ++leaf) {
      // Leaf m of a data rank is leaf m * data + rank of the step; the mesh's first axis varies
      // fastest.
      int64_t at = leaf % c.data();
      auto expert = static_cast<size_t>(c.expert_first ? at % c.experts : at / c.copies);
      double* mine = experts.data() + expert * w * w;
      double* d_mine = d_experts.data() + expert * w * w;
      for (int64_t row = 0; row < kRows; ++row) {
        for (size_t o = 0; o < w; ++o) {
          auto e = static_cast<int64_t>(o) + row * c.width;
          double y = -value_of(leaf, number, e, 11);
          for (size_t i = 0; i < w; ++i)
            y += x(leaf, number, row, i) * (dense[o * w + i] + mine[o * w + i]);
          double dy = 2 * y / static_cast<double>(kRows * c.width * c.leaves());
          for (size_t i = 0; i < w; ++i) {
            d_dense[o * w + i] += dy * x(leaf, number, row, i);
            d_mine[o * w + i] += dy * x(leaf, number, row, i);
          }
        }
      }
    }
    double squares = 0;
    for (const std::vector<double>* d : {&d_dense, &d_experts}) {
      for (double g : *d) squares += g * g;
    }
    norm = std::sqrt(squares);
    double scale =
        kLearningRate * (c.clipping > 0 ? std::min(1.0, c.clipping / (norm + 1e-6)) : 1.0);
    for (size_t i = 0; i < dense.size(); ++i) dense[i] -= scale * d_dense[i];
    for (size_t i = 0; i < experts.size(); ++i) experts[i] -= scale * d_experts[i];
  }
  double x(int64_t leaf, int64_t number, int64_t row, size_t i) const {
    return value_of(leaf, number, row * c.width + static_cast<int64_t>(i), 7);
  }

  const Case c;
  std::vector<double> dense, experts;
  double norm = 0;
};

double train(Engine& engine, const Case& c, int64_t step) {
  int64_t each = kRows * c.width;
  std::vector<float> x, target;
  for (int64_t micro = 0; micro < c.accumulation; ++micro) {
    int64_t leaf = c.mesh().leaf(micro, engine.runtime().comm().rank());
    for (int64_t i = 0; i < each; ++i) {
      x.push_back(value_of(leaf, step, i, 7));
      target.push_back(value_of(leaf, step, i, 11));
    }
  }
  auto count = static_cast<int64_t>(x.size());
  return engine
      .train_batch(std::vector<InputView>{{x.data(), DS_DTYPE_F32, count},
                                          {target.data(), DS_DTYPE_F32, count}})
      .grad_norm;
}

void expect_near(const std::vector<float>& got, const std::vector<double>& want,
                 const std::string& name) {
  ASSERT_EQ(got.size(), want.size()) << name;
  double most = 0;
  for (size_t i = 0; i < got.size(); ++i) most = std::max(most, std::abs(got[i] - want[i]));
  EXPECT_LT(most, 1e-6) << name;
}

void expect_reference(const Case& c) {
  TempFolder folder;
  run_ranks(c.mesh().ranks(), [&](Communicator& comm) {
    EngineOptions options;
    options.mesh = c.mesh();
    Graph graph = graph_of(c, c.mesh().coordinate(comm.rank(), kExpert));
    Engine engine(config_of(c, folder.path()), graph, comm, options);
    Reference reference(c);
    auto read = [&](int32_t p) { return engine.store().read_tensor(ParamId(p), "master"); };
    std::vector<float> dense = read(0), experts = read(1);
    reference.dense.assign(dense.begin(), dense.end());
    reference.experts.assign(experts.begin(), experts.end());
    for (int64_t step = 0; step < 3; ++step) {
      double norm = train(engine, c, step);
      reference.step(step);
      EXPECT_NEAR(norm, reference.norm, 1e-5 * reference.norm) << c.name() << " step " << step;
      expect_near(read(0), reference.dense, c.name() + " dense");
      expect_near(read(1), reference.experts, c.name() + " experts");
    }
  });
}

TEST(ParamClasses, TrainLikeOneProcessInF64) {
  int several = 0, clipped = 0;
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    Case c = draw(seed);
    expect_reference(c);
    several += c.experts > 1 && c.copies > 1;
    clipped += c.clipping > 0;
  }
  EXPECT_GT(several, 10);
  EXPECT_GT(clipped, 10);
}

// Training continues with equal bits from a checkpoint at another stage, with experts on other
// ranks.
TEST(ParamClasses, CheckpointsHoldAllExperts) {
  TempFolder folder;
  auto run = [&](const Case& c, const std::string& from, int64_t first, int64_t steps,
                 const std::string& to) {
    std::vector<std::vector<float>> out;
    run_ranks(c.mesh().ranks(), [&](Communicator& comm) {
      EngineOptions options;
      options.mesh = c.mesh();
      Graph graph = graph_of(c, c.mesh().coordinate(comm.rank(), kExpert));
      Engine engine(config_of(c, folder.path()), graph, comm, options);
      if (!from.empty()) engine.checkpoints().load(from);
      for (int64_t s = first; s < first + steps; ++s) train(engine, c, s);
      if (!to.empty()) engine.checkpoints().save(to);
      std::vector<std::vector<float>> mine;
      for (int32_t p : {0, 1}) mine.push_back(engine.store().read_tensor(ParamId(p), "master"));
      if (comm.rank() == 0) out = mine;
    });
    return out;
  };
  Case c{.width = 17, .accumulation = 2, .experts = 2, .copies = 2, .stage = 0};
  auto straight = run(c, "", 0, 4, "");
  for (int stage : {1, 2, 3}) {
    std::string made = folder / std::to_string(stage);
    Case saves = c, loads = c;
    saves.stage = stage;
    loads.stage = (stage + 1) % 4;
    loads.tier = loads.stage == 0 ? Tier::device : Tier::nvme;
    loads.replicas = 2;
    run(saves, "", 0, 2, made);
    EXPECT_EQ(run(loads, made, 2, 2, ""), straight) << loads.name();
  }
}

TEST(ParamClasses, AnAxisThatTheMeshLacksIsRefused) {
  Case c{.experts = 2, .copies = 2};
  Graph graph = graph_of(c, 0);
  graph.params.back().reduced_over = {"tensor"};
  EXPECT_EQ(message_of([&] { compile_plan(graph, config_of(c, ""), 0, c.mesh(), Machine{}); },
                       DS_ERROR_INVALID_ARGUMENT),
            "parameter 'experts' is reduced over tensor, but the mesh is "
            "expert:2,expert_data:2,replica:1");
  EXPECT_EQ(message_of(
                [] {
                  Mesh({{kData, 2}, {kExpert, 2}});
                },
                DS_ERROR_INVALID_ARGUMENT),
            "mesh axis 'expert' is a part of 'data', which the mesh also has");
}

// The norm of a parameter that is reduced over an axis that is neither `data` nor a part of it is
// not defined yet.
TEST(ParamClasses, AnAxisBesideDataIsRefused) {
  Case c;
  Graph graph = graph_of(c, 0);
  graph.params.back().slice.reset();
  const Mesh mesh({{"tensor", 2}, {kData, 2}});
  for (const std::vector<std::string>& axes :
       std::vector<std::vector<std::string>>{{"tensor", kData}, {"tensor"}}) {
    graph.params.back().reduced_over = axes;
    expect_names(
        message_of([&] { compile_plan(graph, config_of(c, ""), 0, mesh, Machine{}); },
                   DS_ERROR_UNSUPPORTED),
        {"parameter 'experts' is reduced over tensor", "along data, not yet along tensor"});
  }
}

TEST(ParamClasses, ABucketHasOneClass) {
  Case c{.width = 17, .experts = 2, .copies = 3, .stage = 3};
  Config config = config_of(c, "");
  config.zero.reduce_bucket_size = 1 << 20;
  Plan plan = compile_plan(graph_of(c, 1), config, 1, c.mesh(), Machine{});
  const ZeroPlan& zero = plan.zero;
  ASSERT_EQ(zero.classes.size(), 2u);
  EXPECT_EQ(zero.classes[ClassId(0)].axes, (std::vector<std::string>{"expert", "expert_data"}));
  EXPECT_EQ(zero.classes[ClassId(1)].axes, std::vector<std::string>{"expert_data"});
  EXPECT_EQ(zero.classes[ClassId(1)].levels.group(0).name(), "3x2");
  ASSERT_EQ(zero.layout.buckets.size(), 2u);
  EXPECT_EQ(zero.layout.buckets[BucketId(0)].ranks, 6);
  EXPECT_EQ(zero.layout.buckets[BucketId(1)].ranks, 3);
  EXPECT_EQ(zero.layout.buckets[BucketId(1)].numel % (3 * kGranule), 0);
}

}  // namespace
}  // namespace ds::test::classes_test
