// Tests hosts that deviate from their recorded order of calls, evaluate between steps or release
// late. Random hosts are in delegate_random_test.cpp.
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>

#include "core/base/error.h"
#include "engine/delegate.h"
#include "support/errors.h"
#include "support/models.h"
#include "support/ranks.h"
#include "support/temp_folder.h"

namespace ds::test {
namespace {

constexpr int kParams = 4;
constexpr int64_t kNumel = 300;

Config config_of(int stage, int world, int64_t accumulation) {
  Config c = make_config(stage, accumulation, world);
  c.zero.param_persistence_threshold = 0;
  // Each bucket holds one parameter.
  c.zero.reduce_bucket_size = 512;
  c.gradient_clipping = 0;
  c.comm_timeout_ms = 20000;
  return c;
}

void add_params(DelegateEngine& engine) {
  for (int p = 0; p < kParams; ++p) {
    engine.add_param("h." + std::to_string(p) + ".w", {kNumel});
  }
  engine.start();
  for (int p = 0; p < kParams; ++p)
    engine.store().write_tensor(ParamId(p), "master",
                                std::vector<float>(kNumel, static_cast<float>(p + 1)));
}

void give(DelegateEngine& engine, int32_t param, float value = 1) {
  std::vector<float> grad(kNumel, value);
  engine.grad_ready(ParamId(param), {grad.data(), DS_DTYPE_F32, kNumel});
}

void gather(DelegateEngine& engine, std::vector<int32_t> params) {
  engine.gather(ids_of<ParamId>(params));
}
void release(DelegateEngine& engine, std::vector<int32_t> params) {
  engine.release(ids_of<ParamId>(params));
}

// Gathers all parameters at once, hands over gradients in reverse order, and releases before or
// after the end of the micro-step.
void take_micro_step(DelegateEngine& engine, bool late) {
  gather(engine, {0, 1, 2, 3});
  for (int32_t p : {3, 2, 1, 0}) give(engine, p);
  if (!late) release(engine, {0, 1, 2, 3});
  engine.end_micro_step();
  if (late) release(engine, {0, 1, 2, 3});
}

void forward(DelegateEngine& engine, std::vector<int32_t> order = {0, 1, 2, 3}) {
  for (int32_t p : order) {
    gather(engine, {p});
    ASSERT_EQ(engine.view(ParamId(p)).view.numel(), kNumel);
    release(engine, {p});
  }
}

void micro_step(DelegateEngine& engine, const std::vector<int32_t>& order = {3, 2, 1, 0}) {
  forward(engine);
  for (int32_t p : order) give(engine, p);
  engine.end_micro_step();
}

void expect_gradient(DelegateEngine& engine, int32_t param, float want, const std::string& where) {
  for (float g : engine.store().read_tensor(ParamId(param), "grad"))
    ASSERT_EQ(g, want) << "parameter " << param << " " << where;
}

TEST(DelegateOrder, MayChangeAfterAReduction) {
  for (int world : {1, 2}) {
    for (int stage : {0, 1, 2, 3}) {
      Config c = config_of(stage, world, 2);
      c.zero.quantized_gradients = stage >= 2 && world > 1;
      run_ranks(world, [&](Communicator& comm) {
        DelegateEngine engine(c, comm, {});
        add_params(engine);
        for (int s = 0; s < 6; ++s) {
          micro_step(engine);
          micro_step(engine, s == 2 || s == 4 ? std::vector{3, 2, 0, 1} : std::vector{3, 2, 1, 0});
          std::string where = "stage " + std::to_string(stage) + " step " + std::to_string(s);
          for (int32_t p = 0; p < kParams; ++p) expect_gradient(engine, p, 1, where);
          engine.step();
        }
      });
    }
  }
}

// Parameters 0 and 1 share a bucket. The recorded step has a gradient for 0 only. In a later step
// parameter 1 has a gradient as well, handed over last.
TEST(DelegateOrder, AParameterMayHaveAGradientThatTheRecordLacks) {
  for (int stage : {0, 2, 3}) {
    auto self = create_communicator("self", {});
    Config c = config_of(stage, 1, 2);
    c.zero.param_persistence_threshold = 1000;
    c.zero.reduce_bucket_size = 1024;
    DelegateEngine engine(c, *self, {});
    add_params(engine);
    for (int s = 0; s < 4; ++s) {
      for (int m = 0; m < 2; ++m) {
        for (int32_t p : {0, 3, 2, 1}) {
          if (p != 1 || s % 2 == 1) give(engine, p);
        }
        engine.end_micro_step();
      }
      expect_gradient(engine, 1, s % 2 == 1 ? 1 : 0, "step " + std::to_string(s));
      for (int32_t p : {0, 2, 3}) expect_gradient(engine, p, 1, "step " + std::to_string(s));
      engine.step();
    }
  }
}

// An update uses the gradient as edited before it, even if norms and sums are on the host: a
// recorded step does not read them too early.
TEST(DelegateOrder, AGradientMayBeEditedAfterAnyCall) {
  for (int stage : {0, 2, 3}) {
    for (bool late : {false, true}) {
      Config c = config_of(stage, 2, 1);
      c.zero.optimizer_tier = Tier::host;
      // Fetches from the host tier run ahead.
      if (stage == 3) c.zero.param_tier = Tier::host;
      c.emulate_tiers = true;
      run_ranks(2, [&](Communicator& comm) {
        DelegateEngine engine(c, comm, {});
        add_params(engine);
        for (int s = 0; s < 4; ++s) {
          take_micro_step(engine, late);
          EXPECT_EQ(engine.following(), s > 0);
          for (int32_t p = 0; p < kParams; ++p)
            engine.store().write_tensor(ParamId(p), "grad",
                                        std::vector<float>(kNumel, static_cast<float>(s + 2)));
          EXPECT_NEAR(engine.step().grad_norm, (s + 2) * std::sqrt(kParams * kNumel), 1e-3)
              << "stage " << stage << " late " << late << " step " << s;
        }
      });
    }
  }
}

struct Cost {
  std::map<std::string, CommCount> counts;
  int64_t bytes = 0;
  size_t instructions = 0;
};

Cost cost(const Config& c, bool late) {
  Cost out;
  run_ranks(2, [&](Communicator& comm) {
    DelegateEngine engine(c, comm, {});
    add_params(engine);
    for (int s = 0; s < 4; ++s) {
      take_micro_step(engine, late);
      engine.step();
      expect_gradient(engine, 0, 1, "step " + std::to_string(s));
    }
    if (comm.rank() == 0)
      out = {engine.runtime().ledger(), engine.runtime().mapped(Tier::device),
             parse_program(engine.print_plan()).instrs.size()};
  });
  return out;
}

TEST(DelegateOrder, ReleasingAfterTheLastBackwardCostsNothing) {
  for (bool reproducible : {false, true}) {
    for (int stage : {0, 2, 3}) {
      Config c = config_of(stage, 2, 1);
      c.reproducible = reproducible;
      Cost early = cost(c, false), late = cost(c, true);
      EXPECT_EQ(early.instructions, late.instructions) << "stage " << stage;
      EXPECT_EQ(early.bytes, late.bytes) << "stage " << stage;
      ASSERT_EQ(early.counts.size(), late.counts.size());
      for (const auto& [name, count] : early.counts) {
        EXPECT_EQ(count.calls, late.counts.at(name).calls) << name << ", stage " << stage;
        EXPECT_EQ(count.bytes, late.counts.at(name).bytes) << name << ", stage " << stage;
      }
    }
  }
}

TEST(DelegateOrder, EvaluationKeepsTheRecordAndLocksNothing) {
  TempFolder folder;
  for (int stage : {0, 3}) {
    run_ranks(2, [&](Communicator& comm) {
      DelegateEngine engine(config_of(stage, 2, 1), comm, {});
      add_params(engine);
      // Evaluation works even before the first step.
      forward(engine);
      micro_step(engine);
      engine.step();
      std::string recorded = engine.print_plan();
      for (int s = 0; s < 6; ++s) {
        if (s % 3 != 0) forward(engine);
        if (s % 2 != 0) forward(engine, {2, 0, 1, 3});
        if (s == 2) gather(engine, {1});
        if (s == 2) release(engine, {1});
        if (s == 2 || s == 3)
          engine.checkpoints().load(
              engine.checkpoints().save(folder / std::to_string(10 * stage + s)));
        if (s == 3)
          engine.store().write_tensor(ParamId(0), "master", std::vector<float>(kNumel, 1));
        if (s == 4) engine.store().refresh_params();
        expect_gradient(engine, 1, 1, "after a step");
        micro_step(engine);
        EXPECT_TRUE(engine.following()) << "stage " << stage << " step " << s;
        engine.step();
        EXPECT_EQ(engine.print_plan(), recorded) << "stage " << stage << " step " << s;
      }
      forward(engine);
      engine.trained().freeze(std::vector<int32_t>{0}, 1);
    });
  }
}

// Calls outside of steps are forgotten after a while. A step whose first calls were forgotten is
// not recorded.
TEST(DelegateOrder, EvaluationMayGoOnForLong) {
  for (bool held : {false, true}) {
    auto self = create_communicator("self", {});
    DelegateEngine engine(config_of(0, 1, 1), *self, {});
    add_params(engine);
    if (held) gather(engine, {1});
    for (int i = 0; i < 70000; ++i) forward(engine, {0});
    for (int s = 0; s < 3; ++s) {
      micro_step(engine);
      if (s == 0 && held) release(engine, {1});
      expect_gradient(engine, 2, 1, "step " + std::to_string(s));
      engine.step();
      EXPECT_EQ(engine.recorded(), !held || s > 0) << "step " << s;
    }
    EXPECT_TRUE(engine.following());
    EXPECT_LT(engine.print_plan().size(), 100000u);
  }
}

// Proves {delegate.between}.
TEST(DelegateOrder, NothingChangesUnderALease) {
  TempFolder folder;
  auto self = create_communicator("self", {});
  DelegateEngine engine(config_of(3, 1, 1), *self, {});
  add_params(engine);
  std::vector<float> values(kNumel, 5);
  gather(engine, {1, 2});
  std::string path = engine.checkpoints().save(folder.path());
  EXPECT_EQ(engine.store().read_tensor(ParamId(2), "param")[7], 3);
  int32_t param = 0;
  for (const auto& call : std::vector<std::function<void()>>{
           [&] { engine.checkpoints().load(path); }, [&] { engine.store().refresh_params(); },
           [&] { engine.store().write_tensor(ParamId(0), "master", values); },
           [&] {
             engine.trained().freeze({&param, 1}, 1);
           }})
    EXPECT_NE(message_of(call, DS_ERROR_STATE).find("while parameter 'h.1.w' is leased"),
              std::string::npos);
  EXPECT_EQ(engine.view(ParamId(1)).view.as<float>()[9], 2);
  release(engine, {1, 2});
  engine.checkpoints().load(path);
}

TEST(DelegateOrder, ReleasingTooOftenInOneCallChangesNothing) {
  auto self = create_communicator("self", {});
  DelegateEngine engine(config_of(3, 1, 1), *self, {});
  add_params(engine);
  gather(engine, {0, 1, 1});
  EXPECT_EQ(message_of(
                [&] {
                  release(engine, {0, 1, 1, 1});
                },
                DS_ERROR_STATE),
            "parameter 'h.1.w' is released 3 times, but has 2 leases");
  EXPECT_EQ(engine.view(ParamId(0)).view.as<float>()[3], 1);
  EXPECT_EQ(engine.view(ParamId(1)).view.as<float>()[3], 2);
  release(engine, {1, 0, 1});
  EXPECT_THROW(engine.view(ParamId(1)), Error);
}

// Without reuse, each lease has its own gather range, unless an older lease of the parameter is
// still open. Proves {delegate.view.stays}.
TEST(DelegateOrder, ALeaseKeepsItsAddressWhileOthersComeAndGo) {
  run_ranks(2, [](Communicator& comm) {
    Config c = config_of(3, 2, 1);
    c.zero.max_reuse_distance = 0;
    // The limit allows one bucket of 512 elements and little more.
    c.zero.max_live_parameters = 600;
    DelegateEngine engine(c, comm, {});
    add_params(engine);
    for (int s = 0; s < 3; ++s) {
      gather(engine, {0});
      const float* first = engine.view(ParamId(0)).view.as<float>();
      float value = first[0];
      gather(engine, {1, 2});
      EXPECT_EQ(first[kNumel - 1], value);
      release(engine, {2, 1});
      gather(engine, {0});
      EXPECT_EQ(engine.view(ParamId(0)).view.as<float>(), first);
      release(engine, {0});
      forward(engine, {3, 1, 2});
      EXPECT_EQ(first[kNumel - 1], value);
      release(engine, {0});
      give(engine, 0);
      engine.end_micro_step();
      engine.step();
    }
  });
}

// A local write does not involve other ranks: what all ranks know about the host's order stays
// valid.
TEST(DelegateOrder, ALocalWriteDuringEvaluationInvolvesNoOtherRank) {
  for (int writer : {0, 1}) {
    run_ranks(2, [&](Communicator& comm) {
      DelegateEngine engine(config_of(3, 2, 1), comm, {});
      add_params(engine);
      for (int s = 0; s < 4; ++s) {
        micro_step(engine);
        engine.step();
        // These are the first calls of a recorded step, during which fetches run ahead.
        for (int32_t p : {0, 1, 2, 3}) {
          gather(engine, {p});
          EXPECT_EQ(engine.view(ParamId(p)).view.as<float>()[0],
                    engine.store().read_tensor(ParamId(p), "param")[0]);
          release(engine, {p});
          if (comm.rank() == writer)
            engine.store().write_local(ParamId(p), "exp_avg",
                                       engine.store().read_local(ParamId(p), "exp_avg"));
          EXPECT_TRUE(engine.following()) << "after the write of parameter " << p;
        }
      }
    });
  }
}

// If one rank alone deviates from the order, all ranks get an error before any of them updates, and
// none waits forever. Proves {delegate.order.differs}.
TEST(DelegateOrder, ARankThatDepartsFromTheOrderFailsAllRanks) {
  using Odd = std::function<void(DelegateEngine&)>;
  std::vector<Odd> ways = {[](DelegateEngine& e) {
                             micro_step(e, {3, 1, 2, 0});
                           },
                           [](DelegateEngine& e) {
                             micro_step(e, {3, 2, 0});
                           },
                           [](DelegateEngine& e) {
                             for (int32_t p : {3, 2, 1, 0}) give(e, p);
                             e.end_micro_step();
                           },
                           [](DelegateEngine& e) {
                             forward(e, {1, 0, 2, 3});
                             for (int32_t p : {3, 2, 1, 0}) give(e, p);
                             e.end_micro_step();
                           },
                           [](DelegateEngine& e) {
                             micro_step(e);
                             forward(e, {2});
                           }};
  for (int stage : {0, 2, 3}) {
    for (size_t way = 0; way < ways.size(); ++way) {
      for (int odd_step : {0, 1, 3}) {
        std::atomic<int> failed{0};
        run_ranks(3, [&](Communicator& comm) {
          DelegateEngine engine(config_of(stage, 3, 1), comm, {});
          add_params(engine);
          for (int s = 0; s < odd_step; ++s) {
            micro_step(engine);
            engine.step();
          }
          message_of([&] {
            comm.rank() == 1 ? ways[way](engine) : micro_step(engine);
            engine.step();
          });
          EXPECT_EQ(engine.control().steps(), odd_step);
          ++failed;
        });
        EXPECT_EQ(failed, 3) << "stage " << stage << " way " << way << " step " << odd_step;
      }
    }
  }
}

}  // namespace
}  // namespace ds::test
