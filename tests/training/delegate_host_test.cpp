// What a framework needs of delegate mode beyond its order of calls: views that last, a number of
// micro-steps that the host chooses, numbers that change until the update, and messages that name
// the call in which ranks differ.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "core/base/half.h"
#include "core/device/host_device.h"
#include "engine/delegate.h"
#include "support/errors.h"
#include "support/models.h"
#include "support/ranks.h"

namespace ds::test::delegate_host_test {
namespace {

constexpr int kParams = 3;
constexpr int64_t kNumel = 300;

Config config_of(int stage, int world, int64_t accumulation) {
  Config c = make_config(stage, accumulation, world);
  c.zero.param_persistence_threshold = 0;
  c.zero.reduce_bucket_size = 512;  // one parameter a bucket
  c.gradient_clipping = 0;
  return c;
}

void add_params(DelegateEngine& engine) {
  for (int p = 0; p < kParams; ++p) engine.add_param("w" + std::to_string(p), {kNumel});
  engine.start();
  for (int p = 0; p < kParams; ++p)
    engine.store().write_tensor(ParamId(p), "master",
                                std::vector<float>(kNumel, static_cast<float>(p + 1)));
}

// Gives a gradient whose values differ between parameters, micro-steps and ranks.
void give(DelegateEngine& engine, int32_t param, int64_t leaf) {
  std::vector<float> grad(kNumel);
  for (int64_t e = 0; e < kNumel; ++e)
    grad[static_cast<size_t>(e)] = std::sin(static_cast<float>(e + 7 * param + 31 * leaf));
  engine.grad_ready(ParamId(param), {grad.data(), DS_DTYPE_F32, kNumel});
}

void micro_step(DelegateEngine& engine, int64_t leaf) {
  for (int32_t p = kParams; p-- > 0;) give(engine, p, leaf);
  engine.end_micro_step();
}

std::vector<float> masters(DelegateEngine& engine) {
  std::vector<float> out;
  for (int p = 0; p < kParams; ++p) {
    const std::vector<float> own = engine.store().read_tensor(ParamId(p), "master");
    out.insert(out.end(), own.begin(), own.end());
  }
  return out;
}

// Proves {delegate.view.lasting}.
TEST(DelegateHost, AWholeParameterStaysAtItsAddress) {
  for (int stage : {0, 1, 2}) {
    for (int world : {1, 3}) {
      run_ranks(world, [&](Communicator& comm) {
        Config c = config_of(stage, world, 1);
        c.compute = DS_DTYPE_BF16;
        c.frozen = {"w1"};
        DelegateEngine engine(c, comm, {});
        EXPECT_THROW(engine.view(ParamId(0)), Error);
        add_params(engine);
        std::vector<const void*> at;
        for (int p = 0; p < kParams; ++p) at.push_back(engine.view(ParamId(p)).view.data);
        auto check = [&](const std::string& when) {
          for (int p = 0; p < kParams; ++p) {
            const TensorView view = engine.view(ParamId(p)).view;
            EXPECT_EQ(view.data, at[static_cast<size_t>(p)]) << when;
            std::vector<float> got(kNumel);
            widen(view.dtype, view.as<std::byte>(), kNumel, got.data());
            EXPECT_EQ(got, engine.store().read_tensor(ParamId(p), "param")) << when;
          }
        };
        check("at the start");
        for (int s = 0; s < 3; ++s) {
          for (int32_t p : {2, 0}) give(engine, p, comm.rank());
          engine.end_micro_step();
          engine.step();
          check("after step " + std::to_string(s));
        }
        // The memory grows by the states of w1.
        const int32_t param = 1;
        engine.trained().freeze({&param, 1}, 0);
        check("after it grew");
        micro_step(engine, comm.rank());
        engine.step();
        check("after a step with more states");
        engine.store().write_tensor(ParamId(1), "master", std::vector<float>(kNumel, 5));
        check("after a write");
      });
    }
  }
}

TEST(DelegateHost, APartitionedParameterNeedsALease) {
  run_ranks(2, [](Communicator& comm) {
    DelegateEngine engine(config_of(3, 2, 1), comm, {});
    add_params(engine);
    expect_names(message_of([&] { engine.view(ParamId(1)); }, DS_ERROR_STATE),
                 {"w1", "must be gathered", "keeps a part"});
  });
}

// With enable_sanity_checks a host that reads a parameter after its lease finds NaN until the
// parameter is gathered again. Everything else is as without the key.
TEST(DelegateHost, EndedLeasesReadAsNaN) {
  for (const char* device : {"cpu", "separate"}) {
    for (DType compute : {DS_DTYPE_F32, DS_DTYPE_BF16}) {
      run_ranks(2, [&](Communicator& comm) {
        Config c = config_of(3, 2, 1);
        c.device = device;
        c.compute = compute;
        c.zero.reduce_bucket_size = 2 * kNumel;  // w0 and w1 share a bucket
        Config checked = c;
        checked.zero.sanity_checks = true;
        DelegateEngine usual(c, comm, {}), engine(checked, comm, {});
        add_params(usual);
        add_params(engine);
        auto values = [&](const DelegateEngine::Seen& seen) {
          std::vector<float> got(kNumel);
          widen(seen.view.dtype, seen.view.as<std::byte>(), kNumel, got.data());
          return got;
        };
        auto all_nan = [&](const DelegateEngine::Seen& seen) {
          return std::ranges::all_of(values(seen), [](float v) { return std::isnan(v); });
        };
        auto step = [&](DelegateEngine& e, bool checks) {
          const std::vector<ParamId> first{ParamId(0)}, both{ParamId(0), ParamId(1)};
          e.gather(both);
          const DelegateEngine::Seen w0 = e.view(ParamId(0)), w1 = e.view(ParamId(1));
          const std::vector<float> before = values(w0);
          EXPECT_FALSE(std::isnan(before[0]));
          e.release(first);
          EXPECT_FALSE(all_nan(w1)) << "w1 is leased";
          e.gather(first);
          EXPECT_EQ(values(e.view(ParamId(0))), before);
          e.release(both);
          auto spoiled = [&](const char* when) {
            if (checks) {
              EXPECT_TRUE(all_nan(w0) && all_nan(w1)) << when;
            }
          };
          spoiled("after the last release");
          const std::vector<ParamId> other{ParamId(2)};
          e.gather(other);
          spoiled("beside another lease");
          e.release(other);
          e.gather(both);
          EXPECT_EQ(values(e.view(ParamId(0))), before);
          e.release(both);
          micro_step(e, comm.rank());
          spoiled("after gradients");
          e.step();
          spoiled("after the update");
        };
        for (int s = 0; s < 3; ++s) {
          step(engine, true);
          step(usual, false);
          EXPECT_EQ(masters(engine), masters(usual)) << "step " << s;
        }
        EXPECT_TRUE(usual.recorded());
        EXPECT_FALSE(engine.recorded());
      });
    }
  }
}

// An arena that others hold grows without moving, up to the addresses that it has reserved.
TEST(DelegateHost, AnArenaGrowsInPlace) {
  HostArena arena(5000);
  arena.address()[4999] = std::byte{7};
  const std::byte* at = arena.address();
  ASSERT_TRUE(arena.grows_in_place(100000));
  arena.grow(100000);
  EXPECT_EQ(arena.address(), at);
  EXPECT_EQ(arena.address()[4999], std::byte{7});
  EXPECT_EQ(arena.address()[99999], std::byte{0});
  const int64_t beyond = int64_t{5000} * 1000;
  EXPECT_FALSE(arena.grows_in_place(beyond));
  arena.grow(beyond);
  EXPECT_EQ(arena.address()[4999], std::byte{7});
  EXPECT_EQ(arena.address()[beyond - 1], std::byte{0});
}

// Returns the masters after steps with these numbers of micro-steps. `told` is called before each
// micro-step and after the last one of a step.
using Told = std::function<void(DelegateEngine&, int64_t micro, int64_t micros)>;
std::vector<float> train(const Config& c, int world, const std::vector<int64_t>& steps,
                         const Told& told) {
  std::vector<float> out;
  run_ranks(world, [&](Communicator& comm) {
    DelegateEngine engine(c, comm, {});
    add_params(engine);
    int64_t leaf = comm.rank();
    for (int64_t micros : steps) {
      for (int64_t m = 0; m < micros; ++m, leaf += world) {
        told(engine, m, micros);
        micro_step(engine, leaf);
      }
      told(engine, micros, micros);
      engine.step();
    }
    const std::vector<float> whole = masters(engine);
    if (comm.rank() == 0) out = whole;
  });
  return out;
}

// A step of n micro-steps has the bits that it has in an engine whose configuration says n, however
// late the host says so. Proves {delegate.micro_steps}.
TEST(DelegateHost, TheNumberOfMicroStepsIsFree) {
  for (int stage : {0, 1, 2, 3}) {
    for (int world : {1, 2, 3}) {
      for (auto [usual, wanted] : {std::pair<int64_t, int64_t>{1, 3}, {3, 1}, {4, 2}, {2, 5}}) {
        const std::vector<int64_t> steps(4, wanted);
        const auto want = train(config_of(stage, world, wanted), world, steps, [](auto&&...) {});
        const Config c = config_of(stage, world, usual);
        const std::string where =
            fmt::format("stage {}, {} ranks, {} for {}", stage, world, wanted, usual);
        auto tell = [](DelegateEngine& engine, int64_t micros) {
          engine.set("micro_steps", static_cast<double>(micros));
        };
        EXPECT_EQ(train(c, world, steps,
                        [&](DelegateEngine& engine, int64_t m, int64_t micros) {
                          if (m == 0) tell(engine, micros);
                        }),
                  want)
            << where;
        // The host announces, as a framework does, whether each micro-step is the last or another
        // one follows.
        EXPECT_EQ(train(c, world, steps,
                        [&](DelegateEngine& engine, int64_t m, int64_t micros) {
                          if (m < micros) tell(engine, m + 1 < micros ? m + 2 : m + 1);
                        }),
                  want)
            << where;
        if (wanted >= usual) continue;
        EXPECT_EQ(train(c, world, steps,
                        [&](DelegateEngine& engine, int64_t m, int64_t micros) {
                          if (m == micros) tell(engine, micros);
                        }),
                  want)
            << where << ", told after the last";
      }
    }
  }
}

// Usual steps follow the record again after an unusual one. Proves {delegate.mean_micro_steps}.
TEST(DelegateHost, TheDivisorMayBeTheConfiguredNumber) {
  for (int stage : {0, 2, 3}) {
    run_ranks(2, [&](Communicator& comm) {
      Config c = config_of(stage, 2, 4);
      c.optimizer = {};
      c.optimizer.type = "SGD";
      c.optimizer.lr = 1;
      c.optimizer.momentum = 0;
      c.optimizer.weight_decay = 0;
      DelegateEngine engine(c, comm, {});
      add_params(engine);
      const std::vector<float> ones(kNumel, 1);
      auto step = [&](int micros) {
        for (int m = 0; m < micros; ++m) {
          for (int32_t p = kParams; p-- > 0;)
            engine.grad_ready(ParamId(p), {ones.data(), DS_DTYPE_F32, kNumel});
          engine.end_micro_step();
        }
        const bool followed = engine.following();
        engine.step();
        return followed;
      };
      EXPECT_FALSE(step(4));
      EXPECT_TRUE(step(4));
      EXPECT_EQ(masters(engine)[0], 1 - 2);
      engine.set("mean_micro_steps", 4);
      engine.set("micro_steps", 1);
      EXPECT_FALSE(step(1));
      EXPECT_EQ(masters(engine)[0], 1 - 2 - 0.25f);
      EXPECT_TRUE(step(4));
      engine.set("mean_micro_steps", std::nan(""));
      engine.set("micro_steps", 2);
      EXPECT_FALSE(step(2));
      EXPECT_EQ(masters(engine)[0], 1 - 4 - 0.25f);
      EXPECT_TRUE(step(4));
    });
  }
}

TEST(DelegateHost, WrongNumbersOfMicroStepsAreRefused) {
  auto self = create_communicator("self", {});
  DelegateEngine engine(config_of(2, 1, 3), *self, {});
  add_params(engine);
  auto refused = [&](double value, const char* part, ds_status status = DS_ERROR_STATE) {
    expect_names(message_of([&] { engine.set("micro_steps", value); }, status), {part});
  };
  refused(0, "1 to 65536", DS_ERROR_INVALID_ARGUMENT);
  refused(1.5, "1 to 65536", DS_ERROR_INVALID_ARGUMENT);
  micro_step(engine, 0);
  micro_step(engine, 1);
  refused(1, "at least 2", DS_ERROR_INVALID_ARGUMENT);
  give(engine, 2, 0);
  refused(5, "has gradients");
  give(engine, 1, 0);
  give(engine, 0, 0);
  engine.end_micro_step();
  refused(4, "ds_step must follow");
  engine.step();
  EXPECT_EQ(engine.micro_steps().count(), 3);
  expect_names(message_of([&] { engine.set("mean_micro_steps", 0); }, DS_ERROR_INVALID_ARGUMENT),
               {"mean_micro_steps", "0"});
  Config tree = config_of(2, 1, 1);
  tree.reproducible = true;
  DelegateEngine exact(tree, *self, {});
  add_params(exact);
  expect_names(message_of([&] { exact.set("micro_steps", 2); }, DS_ERROR_UNSUPPORTED),
               {"at most 1", "reproducible"});
}

// Whether the step is recorded or runs call by call. Proves {delegate.set}.
TEST(DelegateHost, ANumberSetWithinAStepIsThatOfItsUpdate) {
  for (int stage : {0, 2, 3}) {
    run_ranks(2, [&](Communicator& comm) {
      Config c = config_of(stage, 2, 2);
      c.optimizer = {};
      c.optimizer.type = "SGD";
      c.optimizer.lr = 1;
      c.optimizer.momentum = 0;
      c.optimizer.weight_decay = 0;
      DelegateEngine engine(c, comm, {});
      add_params(engine);
      const std::vector<float> ones(kNumel, 1);
      float want = 1;
      for (int s = 0; s < 4; ++s) {
        for (int m = 0; m < 2; ++m) {
          if (m == 1) engine.set("lr", 7);
          for (int32_t p = kParams; p-- > 0;)
            engine.grad_ready(ParamId(p), {ones.data(), DS_DTYPE_F32, kNumel});
          engine.end_micro_step();
        }
        const double lr = 0.5 * (s + 1);
        engine.set("lr", lr);
        engine.step();
        EXPECT_EQ(masters(engine)[0], want -= static_cast<float>(lr)) << "step " << s;
        EXPECT_EQ(engine.control().last().lr, lr);
      }
    });
  }
}

// The error names the first call that differs, in a recorded step as in the first one.
TEST(DelegateHost, TheFirstDifferentCallIsNamed) {
  for (int good : {0, 2}) {
    std::vector<std::string> messages(2);
    run_ranks(2, [&](Communicator& comm) {
      DelegateEngine engine(config_of(0, 2, 1), comm, {});
      add_params(engine);
      for (int s = 0; s < good; ++s) {
        micro_step(engine, comm.rank());
        engine.step();
      }
      // Gradients of an unpartitioned bucket meet in the reduction, so both ranks give all three.
      const std::vector<int32_t> order =
          comm.rank() == 0 ? std::vector{2, 1, 0} : std::vector{2, 0, 1};
      for (int32_t p : order) give(engine, p, comm.rank());
      engine.end_micro_step();
      messages[static_cast<size_t>(comm.rank())] =
          message_of([&] { engine.step(); }, DS_ERROR_COMM);
    });
    expect_names(messages[0],
                 {"call 2 of the step is ds_grad_ready of 'w1' here and ds_grad_ready of 'w0' on "
                  "rank 1"});
    expect_names(messages[1],
                 {"call 2 of the step is ds_grad_ready of 'w0' here and ds_grad_ready of 'w1' on "
                  "rank 0"});
  }
}

TEST(DelegateHost, DifferentNumbersOfMicroStepsAreNamed) {
  std::vector<std::string> messages(2);
  run_ranks(2, [&](Communicator& comm) {
    DelegateEngine engine(config_of(0, 2, 1), comm, {});
    add_params(engine);
    engine.set("mean_micro_steps", 1 + comm.rank());
    micro_step(engine, comm.rank());
    messages[static_cast<size_t>(comm.rank())] = message_of([&] { engine.step(); }, DS_ERROR_COMM);
  });
  for (const std::string& message : messages)
    expect_names(message, {"mean_micro_steps", "all ranks must set"});
}

// Without comm_timeout_ms, the time-out is that of the communicator.
TEST(DelegateHost, TheCommKeepsItsTimeOut) {
  run_ranks(1, [](Communicator& comm) {
    comm.set_timeout(1234);
    Config c = config_of(0, 1, 1);
    DelegateEngine engine(c, comm, {});
    EXPECT_EQ(comm.timeout_ms(), 1234);
    c.comm_timeout_ms = 4321;
    DelegateEngine other(c, comm, {});
    EXPECT_EQ(comm.timeout_ms(), 4321);
  });
}

// A parameter in f32 of a model in bf16 is computed with, reduced and updated without rounding,
// unless the configuration names the type in which gradients travel.
TEST(DelegateHost, AParameterInF32IsNotRounded) {
  constexpr float kFine = 1 + 0x1p-12F;
  for (int stage = 0; stage <= 3; ++stage) {
    for (int world : {1, 2, 3}) {
      for (DType wire : {DS_DTYPE_NONE, DS_DTYPE_BF16}) {
        run_ranks(world, [&](Communicator& comm) {
          Config c = config_of(stage, world, 1);
          c.compute = DS_DTYPE_BF16;
          c.communication = wire;
          c.optimizer.type = "SGD";
          c.optimizer.lr = 1;
          DelegateEngine engine(c, comm, {});
          engine.add_param("usual", {kNumel});
          engine.add_param("router", {kNumel}, DS_DTYPE_F32);
          engine.start();
          const std::vector<float> grad(kNumel, kFine);
          for (int32_t p : {1, 0})
            engine.grad_ready(ParamId(p), {grad.data(), DS_DTYPE_F32, kNumel});
          engine.end_micro_step();
          engine.step();
          const float router = wire == DS_DTYPE_NONE ? kFine : 1;
          EXPECT_EQ(engine.store().read_tensor(ParamId(0), "grad")[7], 1);
          EXPECT_EQ(engine.store().read_tensor(ParamId(1), "grad")[7], router);
          EXPECT_EQ(engine.store().read_tensor(ParamId(1), "param")[7], -router);
          EXPECT_EQ(engine.store().read_tensor(ParamId(1), "master")[7], -router);
        });
      }
    }
  }
}

}  // namespace
}  // namespace ds::test::delegate_host_test
