// Tests gradients that are reduced once per step (reduction "boundary"), bit for bit against sums
// computed by the test, and together with the other features of a step.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <functional>
#include <limits>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "checkpoint/agree.h"
#include "compile/pipeline.h"
#include "core/base/half.h"
#include "core/base/random.h"
#include "core/program/builder.h"
#include "engine/delegate.h"
#include "engine/engine.h"
#include "support/errors.h"
#include "support/initial.h"
#include "support/rank_sums.h"
#include "support/ranks.h"
#include "support/run_engines.h"
#include "support/same_bits.h"
#include "support/temp_folder.h"

namespace ds::test::boundary_test {
namespace {

using Floats = std::vector<float>;
using Tensors = std::vector<Floats>;

Point point(int world, int64_t micros, int stage = 0) {
  return {.stage = stage, .world = world, .boundary = true, .leaves = micros * world};
}

// --- sums computed by the test ---

float rounded(float x, DType dtype) {
  if (dtype == DS_DTYPE_BF16) return static_cast<float>(bf16(x));
  return dtype == DS_DTYPE_F16 ? static_cast<float>(f16(x)) : x;
}

// Runs one micro-step, ds_forward and ds_backward, on a rank's own tokens.
void micro_step(Engine& engine, int64_t micro, int rank) {
  RandomStream stream{3, static_cast<uint32_t>(micro), static_cast<uint32_t>(rank), 0};
  std::array<int32_t, 16> tokens, targets;
  for (size_t i = 0; i < tokens.size(); ++i) {
    tokens[i] = static_cast<int32_t>(stream.block(i)[0] % 29);
    targets[i] = static_cast<int32_t>(stream.block(i)[1] % 29);
  }
  const auto numel = std::ssize(tokens);
  InputView inputs[] = {{tokens.data(), DS_DTYPE_I32, numel},
                        {targets.data(), DS_DTYPE_I32, numel}};
  engine.forward(inputs);
  engine.backward();
}

Tensors gradients(Engine& engine) {
  Tensors out;
  for (size_t i = 0; i < engine.store().param_names().size(); ++i)
    out.push_back(engine.store().read_tensor(ParamId(i), "grad"));
  return out;
}

// Returns the gradients of each micro-step of a rank. They come from an engine with one rank and
// one micro-step per step, whose parameters never change.
std::vector<Tensors> leaves_of(const Point& p, int rank) {
  Point one{.world = 1, .leaves = 1, .compute = p.compute, .dropout = 0, .clipping = 0};
  Config config = config_of(one);
  config.optimizer.lr = 0;
  auto self = create_communicator("self", {});
  Engine engine(config, graph_of(one), *self, {});
  std::vector<Tensors> out;
  for (int64_t m = 0; m < p.leaves / p.world; ++m) {
    micro_step(engine, m, rank);
    out.push_back(gradients(engine));
    engine.step();
  }
  return out;
}

// Returns what this rank contributes to a tensor's reduction: the sum of its own leaves in
// micro-step order. Each addition is rounded to the accumulation type, and the sum to the type that
// is sent.
Floats own_sum(const Point& p, const std::vector<Tensors>& leaves, size_t tensor) {
  const DType wire = p.communication == DS_DTYPE_NONE ? p.compute : p.communication;
  Floats sum(leaves[0][tensor].size());
  for (size_t m = 0; m < leaves.size(); ++m) {
    for (size_t e = 0; e < sum.size(); ++e) {
      const float x = leaves[m][tensor][e];
      sum[e] = rounded(m == 0 ? x : sum[e] + x, p.grad_accum);
    }
  }
  for (float& x : sum) x = rounded(x, wire);
  return sum;
}

Floats expected_mean(const Point& p, Communicator& comm, const Floats& own) {
  Floats all(own.size() * static_cast<size_t>(p.world));
  comm.all_gather(own.data(), all.data(), own.size() * sizeof(float), "sums");
  std::vector<Floats> parts;
  for (int r = 0; r < p.world; ++r)
    parts.emplace_back(all.begin() + r * std::ssize(own), all.begin() + (r + 1) * std::ssize(own));
  Floats mean = sum_of_neighbours(std::move(parts));
  for (float& x : mean)
    x = rounded(x, p.grad_accum) * static_cast<float>(1.0 / static_cast<double>(p.leaves));
  return mean;
}

// Checks the reduced gradients against the test's own sums. Returns the number of elements that
// differ from those of reduction "micro".
int64_t expect_sums(Point p) {
  p.dropout = p.clipping = 0;
  int64_t other = 0;
  run_ranks(p.world, [&](Communicator& comm) {
    const std::vector<Tensors> leaves = leaves_of(p, comm.rank());
    Point each = p;
    each.boundary = false;
    EngineOptions options;
    set_device(options, p);
    Engine engine(config_of(p), graph_of(p), comm, options),
        micro(config_of(each), graph_of(each), comm, {});
    for (int64_t m = 0; m < p.leaves / p.world; ++m) {
      micro_step(engine, m, comm.rank());
      micro_step(micro, m, comm.rank());
    }
    const Tensors got = gradients(engine), others = gradients(micro);
    for (size_t t = 0; t < got.size(); ++t) {
      const Floats want = expected_mean(p, comm, own_sum(p, leaves, t));
      for (size_t e = 0; e < want.size(); ++e) {
        ASSERT_EQ(got[t][e], want[e]) << p.name() << " tensor " << t << " element " << e;
        if (comm.rank() == 0) other += got[t][e] != others[t][e] ? 1 : 0;
      }
    }
    engine.step();
    EXPECT_EQ(gradients(engine), got) << "the update must not change gradients";
  });
  return other;
}

TEST(Boundary, SumsEqualThoseComputedByTheTest) {
  struct Types {
    DType compute, communication, sums;
    // Whether the gradients of the two reductions differ even on a single rank.
    bool alone;
  };
  const Types all[] = {{DS_DTYPE_F32, DS_DTYPE_NONE, DS_DTYPE_F32, false},
                       {DS_DTYPE_BF16, DS_DTYPE_NONE, DS_DTYPE_F32, true},
                       {DS_DTYPE_BF16, DS_DTYPE_F32, DS_DTYPE_F32, false},
                       {DS_DTYPE_F32, DS_DTYPE_F16, DS_DTYPE_F32, true},
                       {DS_DTYPE_F32, DS_DTYPE_NONE, DS_DTYPE_BF16, false},
                       {DS_DTYPE_BF16, DS_DTYPE_F16, DS_DTYPE_BF16, true}};
  int i = 0;
  for (int world : {1, 2, 3, 4}) {
    for (const Types& types : all) {
      Point p = point(world, 2 + i % 2, i % 2);
      p.compute = types.compute;
      p.communication = types.communication;
      p.grad_accum = types.sums;
      p.tier = static_cast<Tier>(i / 2 % 3);
      p.nodes = world == 4 ? 1 + i / 3 % 2 : 0;
      if (++i % 3 == 0) p.separate = 0;
      const int64_t other = expect_sums(p);
      // Sums of so few bf16 gradients may be exact in f32.
      if (p.communication == DS_DTYPE_F32 && world > 1) continue;
      EXPECT_EQ(other > 0, world > 1 || types.alone) << p.name();
    }
  }
}

// --- unchanged properties ---

std::string program_of(const Point& p, int rank) {
  return print_steps(compile_plan(graph_of(p), config_of(p), rank, p.world, Machine{}));
}

TEST(Boundary, OneMicroStepHasTheSameProgramWithEitherReduction) {
  for (DType communication : {DS_DTYPE_NONE, DS_DTYPE_F32}) {
    for (int stage : {0, 1}) {
      Point p = point(3, 1, stage), micro = p;
      micro.boundary = false;
      p.communication = micro.communication = communication;
      EXPECT_EQ(program_of(p, 1), program_of(micro, 1)) << p.name();
      EXPECT_EQ(train_threads(p, 4).bits(), train_threads(micro, 4).bits()) << p.name();
    }
  }
}

// Even at stage 1, each rank accumulates whole gradients: both reductions need the same memory.
TEST(Boundary, StatesNeedNoMoreMemory) {
  for (int stage : {0, 1}) {
    Point p = point(2, 4, stage), micro = p;
    micro.boundary = false;
    EXPECT_EQ(train_threads(p, 1).ledgers[0].state, train_threads(micro, 1).ledgers[0].state);
  }
}

// Compressed gradients stay on their rank until they are exchanged, once per step under either
// reduction.
TEST(Boundary, CompressedGradientsHaveEqualBitsWithEitherReduction) {
  for (const char* type : {"int8", "top_k"}) {
    Point p = point(2, 3, 1);
    Config once = config_of(p), each = once;
    once.gradient_compression = each.gradient_compression = {type, 0.05};
    each.reduction = "micro";
    EXPECT_EQ(run_steps(p, once, 4), run_steps(p, each, 4)) << type;
  }
}

TEST(Boundary, WorksWithEveryOptimizer) {
  for (const char* optimizer :
       {"SGD", "Lion", "Adagrad", "Lamb", "Muon", "OneBitAdam", "OneBitLamb"}) {
    Point p = point(3, 2), micro = p;
    p.optimizer = micro.optimizer = optimizer;
    micro.boundary = false;
    const std::string want = run_steps(p, config_of(p), 6);
    EXPECT_NE(run_steps(micro, config_of(micro), 6), want) << optimizer;
    p.stage = 1;
    p.tier = Tier::nvme;
    p.bucket_size = 4000;
    EXPECT_EQ(run_steps(p, config_of(p), 6), want) << p.name();
  }
}

// The 2 micro-steps of a step name at most 32 rows. Each row has 24 bf16 elements and a row number.
// As many rows are received from each of the 3 other ranks.
TEST(Boundary, NotesCountTheRowsOfAStep) {
  Point p = point(4, 2, 1);
  p.vocab = 400;
  p.tied = false;
  p.sparse = true;
  const Plan plan = compile_plan(graph_of(p), config_of(p), 0, p.world, Machine{});
  EXPECT_EQ(plan.notes,
            std::vector<std::string>{
                "sparse_gradients: 'wte.weight' is reduced as rows: 4992 bytes received in a step "
                "as rows, 46080 as a whole"});
}

// A reduction sends the rows that the ids of all micro-steps name. The micro-steps name different
// rows.
TEST(Boundary, ReducesTheRowsOfAllMicroSteps) {
  for (int world : {2, 3, 4}) {
    Point plain = point(world, 3);
    plain.vocab = 400;
    plain.tied = false;
    plain.compute = DS_DTYPE_F32;
    const std::string want = train_threads(plain, 4).bits();
    for (int stage : {0, 1}) {
      Point p = plain;
      p.stage = stage;
      p.sparse = true;
      p.tier = static_cast<Tier>((world + stage) % 3);
      p.nodes = world == 4 ? 2 : 0;
      p.written_out = stage == 0 ? 0 : 16;
      int packs = 0, gathers = 0;
      std::mutex mutex;
      EXPECT_EQ(train_threads(p, 4,
                              [&](Program& program) {
                                std::lock_guard lock(mutex);
                                for (const Instr& in : program.instrs) {
                                  packs += in.def->op == Op::pack_rows ? 1 : 0;
                                  gathers += in.def->op == Op::all_reduce ? 1 : 0;
                                }
                              })
                    .bits(),
                want)
          << p.name();
      EXPECT_EQ(packs, world) << "once a step";
      EXPECT_GT(gathers, 0);
    }
  }
}

// A micro-batch may be shorter than its bound. In memory, its ids are then followed by those of an
// earlier step, which must be ignored.
TEST(Boundary, ReducesTheRowsOfShortMicroBatches) {
  Point p = point(2, 2);
  p.vocab = 400;
  p.tied = false;
  p.clipping = 0;
  auto train = [&](bool sparse) {
    p.sparse = sparse;
    return run_engines(p, config_of(p), [&](Engine& engine) {
      train_step(p, engine, 0);
      // These are 2 micro-steps of 8 rows.
      std::vector<int32_t> tokens(16), targets(16, 5);
      for (size_t i = 0; i < tokens.size(); ++i)
        tokens[i] = static_cast<int32_t>(300 + i) + 20 * engine.runtime().comm().rank();
      InputView inputs[] = {{tokens.data(), DS_DTYPE_I32, 16}, {targets.data(), DS_DTYPE_I32, 16}};
      engine.train_batch(inputs);
    });
  };
  EXPECT_EQ(train(true), train(false));
}

// --- combined with other features ---

TEST(Boundary, UnevenRanksMayJoin) {
  auto train = [](const Point& p) {
    return run_engines(p, config_of(p), [&](Engine& engine) {
      const int mine = std::array{3, 1, 2}[static_cast<size_t>(engine.runtime().comm().rank())];
      for (int s = 0; s < mine; ++s) train_step(p, engine, s);
      EXPECT_EQ(engine.join(), 3 - mine);
      train_step(p, engine, 7);
    });
  };
  Point p = point(3, 3);
  const std::string want = train(p);
  p.stage = 1;
  p.tier = Tier::nvme;
  p.chaos = 3;
  EXPECT_EQ(train(p), want);
  p = point(3, 3);
  p.boundary = false;
  EXPECT_NE(train(p), want);
}

TEST(Boundary, WorksWithFrozenParametersAndCallsInPieces) {
  auto train = [](const Point& p, bool pieces) {
    return run_engines(p, config_of(p), [&](Engine& engine) {
      const std::vector<int32_t> some{2, 5};
      for (int s = 0; s < 6; ++s) {
        if (s == 2) engine.trained().freeze(some, 1);
        if (s == 4) engine.trained().freeze(some, 0);
        pieces ? train_step_in_pieces(p, engine, s, [] {}) : train_step(p, engine, s);
      }
    });
  };
  const std::string want = train(point(2, 3), false);
  EXPECT_EQ(train(point(2, 3, 1), true), want);
}

// A sum of f16 gradients may overflow although no gradient does. The step is then skipped, the loss
// scale is lowered, and the run continues. A sum in f32 would not overflow.
TEST(Boundary, ASumThatOverflowsIsSkipped) {
  for (int stage : {0, 1}) {
    Point p = point(2, 8, stage);
    p.compute = DS_DTYPE_F16;
    int skipped[2] = {0, 0};
    for (bool wide : {false, true}) {
      p.communication = wide ? DS_DTYPE_F32 : DS_DTYPE_NONE;
      Config config = config_of(p);
      config.loss_scale = {.initial_scale_power = 24, .window = 100, .hysteresis = 1};
      std::vector<int> counts(2);
      run_engines(p, config, [&](Engine& engine) {
        for (int s = 0; s < 16; ++s) {
          const StepResult r = train_step(p, engine, s);
          counts[static_cast<size_t>(engine.runtime().comm().rank())] += r.skipped ? 1 : 0;
          if (!r.skipped) continue;
          EXPECT_NE(r.reason.find("first tensor with NaN or infinity"), std::string::npos)
              << r.reason;
        }
      });
      EXPECT_EQ(counts[0], counts[1]);
      skipped[wide] = counts[0];
    }
    EXPECT_GT(skipped[1], 0);
    EXPECT_LT(skipped[1], skipped[0]) << "stage " << stage;
    EXPECT_LE(skipped[0], skipped[1] + 3) << "eight gradients are three powers of two";
  }
}

TEST(Boundary, AResumedRunHasTheBitsOfAnUnbrokenRun) {
  TempFolder folder;
  const Point from = point(3, 3, 1);
  Point onto = point(3, 3);
  onto.tier = Tier::host;
  onto.threads = 2;
  auto steps = [](const Point& p, Engine& engine, int begin, int end) {
    for (int s = begin; s < end; ++s) train_step(p, engine, s);
  };
  const std::string want =
      run_engines(from, config_of(from), [&](Engine& e) { steps(from, e, 0, 6); });
  run_engines(from, config_of(from), [&](Engine& e) {
    steps(from, e, 0, 3);
    e.checkpoints().save(folder / "run");
  });
  EXPECT_EQ(run_engines(onto, config_of(onto),
                        [&](Engine& e) {
                          e.checkpoints().load(folder / "run");
                          steps(onto, e, 3, 6);
                        }),
            want);
}

TEST(Boundary, HasADifferentNumericsKey) {
  auto key = [](const Point& p) {
    std::string out;
    run_ranks(p.world, [&](Communicator& comm) {
      Engine engine(config_of(p), graph_of(p), comm, {});
      if (comm.rank() == 0) out = engine.checkpoints().numerics_key();
    });
    return out;
  };
  Point p = point(2, 2), micro = p;
  micro.boundary = false;
  expect_names(key(p), {"reduction boundary"});
  expect_names(key(micro), {"reduction micro"});
  // Communication in f32 matters only for sums: under "micro", bf16 leaves lose nothing in bf16.
  p.communication = micro.communication = DS_DTYPE_F32;
  expect_names(key(p), {"communication f32"});
  EXPECT_EQ(key(micro).find("communication"), std::string::npos);
  EXPECT_EQ(key(point(2, 1)), key({.world = 2, .leaves = 2}))
      << "of one micro-step both are the same";
}

// --- delegates ---

// Between micro-steps no gradient can be read, because the ranks' own sums have not been reduced
// yet. After the last micro-step a gradient is the mean over all ranks, and the host may change it.
TEST(Boundary, ADelegateReadsGradientsBeforeItsStep) {
  for (int stage : {0, 1}) {
    Config config = config_of(point(3, 3, stage));
    config.compute = DS_DTYPE_F32;
    config.gradient_clipping = 0;
    config.optimizer.type = "SGD";
    config.optimizer.lr = 1;
    config.optimizer.momentum = config.optimizer.weight_decay = 0;
    config.optimizer.nesterov = false;
    run_ranks(3, [&](Communicator& comm) {
      DelegateEngine engine(config, comm, with_values({Floats(300, 0.0f)}));
      const ParamId w = engine.add_param("w", {300});
      engine.start();
      float master = 0;
      for (int s = 0; s < 4; ++s) {
        for (int m = 0; m < 3; ++m) {
          const Floats grad(300, static_cast<float>((1 + comm.rank()) * (m + 1) + s));
          engine.grad_ready(w, {grad.data(), DS_DTYPE_F32, 300});
          engine.end_micro_step();
          if (m == 2) continue;
          expect_names(message_of([&] { engine.store().read_tensor(w, "grad"); }, DS_ERROR_STATE),
                       {"before the first"});
        }
        // The sums of the ranks are 6, 12 and 18, and each rank adds 3 s.
        const float mean = static_cast<float>(36 + 9 * s) * static_cast<float>(1.0 / 9.0);
        EXPECT_EQ(engine.store().read_tensor(w, "grad"), Floats(300, mean)) << "stage " << stage;
        float used = mean;
        if (s == 2) {
          used = 2;
          engine.store().write_tensor(w, "grad", Floats(300, used));
        }
        engine.step();
        master -= used;
        for (float x : engine.store().read_tensor(w, "master")) ASSERT_NEAR(x, master, 1e-5) << s;
        master = engine.store().read_tensor(w, "master")[0];
      }
    });
  }
}

}  // namespace
}  // namespace ds::test::boundary_test
