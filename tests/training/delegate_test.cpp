#include "engine/delegate.h"

#include <gtest/gtest.h>

#include <array>

#include "core/base/error.h"
#include "core/base/random.h"
#include "engine/engine.h"
#include "support/errors.h"
#include "support/initial.h"
#include "support/models.h"
#include "support/ranks.h"

namespace ds::delegate_test {
namespace {

constexpr int kLayers = 4, kSteps = 20;
constexpr int64_t kWidth = 32, kRows = 8, kMicros = 2;

// Settings for several ranks: nodes, MiCS shard groups, hpZ secondary shards, and the reduction.
struct Groups {
  int64_t nodes = 0, mics = -1, hpz = 1;
  const char* reduction = "micro";
};

Config config_for(int stage, Tier tier, int64_t accumulation, int64_t world,
                  const Groups& groups = {}) {
  Config c = test::make_config(stage, accumulation, static_cast<int>(world));
  c.zero.param_persistence_threshold = 100;
  c.zero.max_reuse_distance = 0;
  c.zero.optimizer_tier = c.zero.param_tier = tier;
  c.zero.nvme_path = std::string(DS_BINARY_DIR) + "/scratch";
  c.emulate_tiers = true;
  c.gradient_clipping = 0.5;
  c.nodes = groups.nodes;
  c.zero.mics_shard_size = groups.mics;
  c.zero.hpz_partition_size = groups.hpz;
  c.reduction = groups.reduction;
  return c;
}

struct Batch {
  std::vector<float> x, target;
};

Batch draw(int64_t step, int64_t leaf) {
  Batch b;
  RandomStream stream{5, static_cast<uint32_t>(step), static_cast<uint32_t>(leaf), 0};
  for (uint64_t i = 0; i < kRows * kWidth; ++i) {
    b.x.push_back(static_cast<float>(normal_element(stream, i)));
    b.target.push_back(static_cast<float>(normal_element(stream, i + 100000)));
  }
  return b;
}

std::array<InputView, 2> views(const std::vector<float>& x, const std::vector<float>& target) {
  return {InputView{x.data(), DS_DTYPE_F32, static_cast<int64_t>(x.size())},
          InputView{target.data(), DS_DTYPE_F32, static_cast<int64_t>(target.size())}};
}

using State = std::vector<std::vector<float>>;

template <typename E>
State state_of(E& engine) {
  State out;
  for (size_t p = 0; p < engine.store().param_names().size(); ++p) {
    for (const char* kind : {"master", "exp_avg", "exp_avg_sq", "param"}) {
      out.push_back(engine.store().read_tensor(ParamId(p), kind));
    }
  }
  return out;
}

// Returns the gathers of buckets, the accumulations, reductions, norms and updates of a program, by
// queue, in order. Each has its name, the buffer of its last operand and its micro-step. Orders
// between queues are not compared: a recorded reduction ends before the host's next call, but a
// native one may end after the next reduction has started.
std::map<Queue, std::vector<std::string>> moves(const std::string& text) {
  Program p = parse_program(text);
  std::map<Queue, std::vector<std::string>> out;
  for (const Instr& in : p.instrs) {
    bool keep = in.def->name == "all_gather" || in.def->name == "reduce_scatter" ||
                in.def->name == "all_reduce" || in.def->name == "adamw" ||
                in.def->name == "accumulate" || in.def->name == "granule_norms" ||
                in.def->name == "clip";
    if (!keep || (in.def->name == "all_gather" && !in.bucket.exists())) continue;
    out[in.queue].push_back(in.def->name + " " + p.buffers[in.operands.back().buffer].name + " " +
                            std::to_string(in.micro.number()));
  }
  return out;
}

// A host with its own network: a second engine with one rank computes the leaf gradients. Its own
// updates are overwritten before each micro-step.
class Host {
 public:
  Host(DelegateEngine& engine, Engine& calculator) : engine_(engine), calculator_(calculator) {}

  // Makes the calls of a micro-step. If `odd` is set, its forward gathers the layers in reverse
  // order.
  void micro_step(const Batch& batch, bool odd) {
    for (int l = 0; l < kLayers; ++l) lease(odd ? kLayers - 1 - l : l, true);
    calculator_.forward(views(batch.x, batch.target));
    calculator_.backward();
    for (int l = kLayers - 1; l >= 0; --l) {
      if (l > 0) lease(l, false);
      for (int32_t p : {2 * l, 2 * l + 1}) {
        std::vector<float> grad = calculator_.store().read_tensor(ParamId(p), "grad");
        engine_.grad_ready(ParamId(p),
                           {grad.data(), DS_DTYPE_F32, static_cast<int64_t>(grad.size())});
      }
    }
    calculator_.step();
    engine_.end_micro_step();
  }

 private:
  void lease(int layer, bool use) {
    ParamId params[] = {ParamId(2 * layer), ParamId(2 * layer + 1)};
    engine_.gather(params);
    for (ParamId p : params) {
      TensorView v = engine_.view(p).view;
      if (!use) continue;
      calculator_.store().write_tensor(p, "master",
                                       {v.as<float>(), static_cast<size_t>(v.numel())});
    }
    engine_.release(params);
  }

  DelegateEngine& engine_;
  Engine& calculator_;
};

struct Trained {
  State state;
  std::string program;
};

Trained train_native(int stage, Tier tier, int world = 2, const Groups& groups = {}) {
  Trained out;
  test::run_ranks(world, [&](Communicator& comm) {
    Engine engine(config_for(stage, tier, kMicros, world, groups),
                  test::make_mlp(kLayers, kWidth, kRows), comm, {});
    for (int s = 0; s < kSteps; ++s) {
      std::vector<float> x, target;
      for (int64_t m = 0; m < kMicros; ++m) {
        Batch b = draw(s, m * world + comm.rank());
        x.insert(x.end(), b.x.begin(), b.x.end());
        target.insert(target.end(), b.target.begin(), b.target.end());
      }
      engine.train_batch(views(x, target));
    }
    State state = state_of(engine);
    if (comm.rank() == 0) out = {state, engine.print_plan()};
  });
  return out;
}

Trained train_delegate(int stage, Tier tier, int odd_step, int world = 2,
                       const Groups& groups = {}) {
  Trained out;
  test::run_ranks(world, [&](Communicator& comm) {
    Graph graph = test::make_mlp(kLayers, kWidth, kRows);
    auto self = create_communicator("self", {});
    Engine calculator(config_for(0, Tier::device, 1, 1), graph, *self, {});
    std::vector<std::vector<float>> initial;
    for (size_t p = 0; p < graph.params.size(); ++p)
      initial.push_back(calculator.store().read_tensor(ParamId(p), "master"));
    DelegateEngine engine(config_for(stage, tier, kMicros, world, groups), comm,
                          test::with_values(initial));
    for (size_t p = 0; p < graph.params.size(); ++p)
      engine.add_param(graph.params[p].name, calculator.store().param_shapes()[p]);
    engine.start();
    Host host(engine, calculator);
    for (int s = 0; s < kSteps; ++s) {
      for (int64_t m = 0; m < kMicros; ++m) {
        host.micro_step(draw(s, m * world + comm.rank()), s == odd_step && m == 1);
      }
      engine.step();
      EXPECT_TRUE(engine.recorded());
    }
    State state = state_of(engine);
    if (comm.rank() == 0) out = {state, engine.print_plan()};
  });
  return out;
}

TEST(Delegate, HasTheBitsAndInstructionsOfANativeEngine) {
  for (int stage : {0, 1, 2, 3}) {
    for (Tier tier : {Tier::device, Tier::nvme}) {
      Trained native = train_native(stage, tier), delegate = train_delegate(stage, tier, -1);
      EXPECT_EQ(native.state, delegate.state) << "stage " << stage << " tier " << tier_name(tier);
      EXPECT_EQ(moves(native.program), moves(delegate.program))
          << "stage " << stage << " tier " << tier_name(tier);
    }
  }
}

// Returns how often a program copies or adds gradients to accumulators, by micro-step.
std::map<int64_t, int> accumulations(const std::string& text) {
  std::map<int64_t, int> out;
  for (const Instr& in : parse_program(text).instrs)
    if (in.def->name == "accumulate") ++out[in.micro.number()];
  return out;
}

TEST(Delegate, WritesFirstGradientsOfASingleRankIntoTheirSum) {
  for (int stage : {0, 2}) {
    const Trained native = train_native(stage, Tier::device, 1);
    const Trained usual = train_delegate(stage, Tier::device, -1, 1);
    EXPECT_EQ(native.state, usual.state) << "stage " << stage;
    EXPECT_EQ(native.state, train_delegate(stage, Tier::device, 7, 1).state)
        << "stage " << stage << ", a host that leaves its order";
    EXPECT_GT(accumulations(native.program)[0], 0);
    EXPECT_EQ(accumulations(usual.program)[0], 0) << usual.program;
    EXPECT_GT(accumulations(usual.program)[1], 0);
  }
}

TEST(Delegate, HasTheBitsOfANativeEngineInShardGroupsAndOverNodes) {
  Trained plain = train_native(3, Tier::device, 4);
  for (const Groups& groups : {Groups{2, -1, 1}, Groups{0, 2, 1}, Groups{0, -1, 2}}) {
    Trained native = train_native(3, Tier::host, 4, groups);
    Trained delegate = train_delegate(3, Tier::host, -1, 4, groups);
    EXPECT_EQ(native.state, plain.state) << groups.nodes << " " << groups.mics << " " << groups.hpz;
    EXPECT_EQ(delegate.state, plain.state)
        << groups.nodes << " " << groups.mics << " " << groups.hpz;
    EXPECT_EQ(moves(native.program), moves(delegate.program));
  }
}

TEST(Delegate, HasTheBitsAndCollectivesOfANativeEngineAtTheBoundary) {
  struct {
    int stage;
    Tier tier;
    int world;
    int64_t nodes;
  } const cases[] = {{0, Tier::device, 3, 0}, {1, Tier::nvme, 3, 0}, {1, Tier::device, 4, 2}};
  for (const auto& [stage, tier, world, nodes] : cases) {
    const Groups groups{.nodes = nodes, .reduction = "boundary"};
    const State want = train_native(0, Tier::device, world, {.reduction = "boundary"}).state;
    EXPECT_NE(train_native(0, Tier::device, world).state, want);
    Trained native = train_native(stage, tier, world, groups);
    Trained delegate = train_delegate(stage, tier, -1, world, groups);
    EXPECT_EQ(native.state, want) << stage << tier_name(tier) << world;
    EXPECT_EQ(delegate.state, want) << stage << tier_name(tier) << world;
    // A native step accumulates the next bucket while ranks reduce the current one.
    EXPECT_EQ(moves(native.program)[Queue::comm], moves(delegate.program)[Queue::comm]) << world;
    EXPECT_EQ(train_delegate(stage, tier, 7, world, groups).state, want)
        << "a host that leaves its order";
  }
}

TEST(Delegate, AHostThatDepartsFromItsOrderGetsTheSameBits) {
  for (int stage : {0, 3}) {
    Trained usual = train_delegate(stage, Tier::host, -1),
            odd = train_delegate(stage, Tier::host, 7);
    EXPECT_EQ(usual.state, odd.state) << "stage " << stage;
  }
}

TEST(Delegate, WrongCallsAreRefused) {
  auto self = create_communicator("self", {});
  std::vector<float> w(64, 1.0f);
  DelegateEngine engine(config_for(3, Tier::device, 1, 1), *self, test::with_values({w}));
  EXPECT_THROW(engine.start(), Error) << "no parameter";
  ParamId p = engine.add_param("w", {8, 8});
  EXPECT_THROW(engine.add_param("w", {2}), Error);
  engine.start();
  EXPECT_THROW(engine.start(), Error);
  EXPECT_THROW(engine.grad_ready(ParamId(p), {w.data(), DS_DTYPE_F32, 3}), Error);
  EXPECT_THROW(engine.grad_ready(ParamId(1), {w.data(), DS_DTYPE_F32, 64}), Error);
  EXPECT_EQ(test::message_of(
                [&] {
                  engine.grad_ready(ParamId(p), {w.data(), DS_DTYPE_F64, 64});
                },
                DS_ERROR_INVALID_ARGUMENT),
            "gradient of 'w' must be f32, got f64");
  EXPECT_THROW(engine.step(), Error);
  ParamId params[] = {p};
  engine.gather(params);
  EXPECT_EQ(engine.view(ParamId(p)).view.as<float>()[5], 1.0f);
  EXPECT_THROW(engine.add_param("late", {2}), Error);
  engine.grad_ready(ParamId(p), {w.data(), DS_DTYPE_F32, 64});
  EXPECT_THROW(engine.grad_ready(ParamId(p), {w.data(), DS_DTYPE_F32, 64}), Error);
  engine.end_micro_step();
  EXPECT_THROW(engine.step(), Error) << "a lease is open";
  engine.release(params);
  EXPECT_THROW(engine.release(params), Error);
  engine.step();
  EXPECT_EQ(engine.control().steps(), 1);
}

}  // namespace
}  // namespace ds::delegate_test
