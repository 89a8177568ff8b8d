// ZeRO++: weights gathered and gradients reduced as codes. How far they are off, that sums have the right
// scale, that nothing else changes bits, and that training stands it.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <set>

#include "core/base/error.h"
#include "core/base/random.h"
#include "engine/delegate.h"
#include "support/errors.h"
#include "support/models.h"
#include "support/ranks.h"
#include "support/same_bits.h"

namespace ds::test {
namespace {

constexpr int64_t kGranule = 256, kRows = 60, kColumns = 50;  // no whole number of granules

// What rounding in f32 adds to a bound of a few sums and products.
constexpr double kRounding = 1 + 0x1p-18;

std::vector<float> random_values(uint64_t seed, double spread) {
  std::vector<float> out;
  RandomStream stream{seed, 0, 0, 0};
  for (uint64_t e = 0; e < kRows * kColumns; ++e)  // each granule has its own size
    out.push_back(static_cast<float>(spread * normal_element(stream, e) * std::pow(2.0, (e >> 8) % 5)));
  return out;
}

// Per element of a granule-wise maximum.
std::vector<double> granule_tops(const std::vector<double>& x) {
  std::vector<double> top(x.size());
  for (size_t g = 0; g < x.size(); g += kGranule) {
    size_t end = std::min(x.size(), g + kGranule);
    double most = 0;
    for (size_t e = g; e < end; ++e) most = std::max(most, std::abs(x[e]));
    std::fill(top.begin() + static_cast<ptrdiff_t>(g), top.begin() + static_cast<ptrdiff_t>(end), most);
  }
  return top;
}

Config delegate_config(int stage, int world, int64_t nodes, int64_t accumulation = 1) {
  Config c = make_config(stage, accumulation, world);
  c.zero.param_persistence_threshold = 0;
  c.nodes = nodes;
  c.gradient_clipping = 0;
  return c;
}

// ---- weights ----

// Every rank sees the same values, each at most half a scale from its master, which stays as it was.
TEST(QuantizedWeights, GatheredWithinHalfAScale) {
  const std::vector<float> data = random_values(1, 0.02);
  for (auto [world, nodes] : {std::pair{1, 1}, {2, 1}, {3, 1}, {4, 2}, {8, 4}}) {
    std::vector<std::vector<float>> seen(static_cast<size_t>(world));
    run_ranks(world, [&](Communicator& comm) {
      Config c = delegate_config(3, world, nodes);
      c.zero.quantized_weights = true;
      DelegateEngine engine(c, comm, {});
      int32_t p = engine.add_param("w", {kRows, kColumns}, data);
      engine.gather({&p, 1});
      TensorView v = engine.view(p);
      seen[static_cast<size_t>(comm.rank())].assign(v.as<float>(), v.as<float>() + v.numel());
      EXPECT_EQ(engine.ledger().count("all_gather") + engine.ledger().count("all_gather 2x2"),
                1u + (nodes == 2));
      engine.release({&p, 1});
      EXPECT_EQ(engine.read_tensor(p, "master"), data);
    });
    for (const auto& other : seen) EXPECT_EQ(other, seen[0]);
    std::vector<double> top = granule_tops({data.begin(), data.end()});
    double most = 0;
    for (size_t e = 0; e < data.size(); ++e) {
      double off = std::abs(static_cast<double>(seen[0][e]) - static_cast<double>(data[e]));
      EXPECT_LE(off, top[e] / 127 / 2 * kRounding) << e << " of " << world << " ranks";
      most = std::max(most, off / top[e]);
    }
    EXPECT_GT(most, 0.4 / 127) << "nothing is quantized";
  }
}

std::vector<std::string> ops_between(const Program& p, size_t first, size_t last) {
  std::vector<std::string> out;
  for (size_t i = first + 1; i < last; ++i) {
    if (p.instrs[i].queue == Queue::compute) out.push_back(p.instrs[i].op);
  }
  return out;
}

// The codes of the next bucket are made and on their way while the one before computes.
TEST(QuantizedWeights, ArePrefetched) {
  for (bool overlap : {false, true}) {
    for (int64_t nodes : {1, 2}) {
      Point p{.stage = 3,
              .world = 4,
              .overlap = overlap,
              .nodes = nodes,
              .quantized_weights = true,
              .leaves = 8,
              .max_reuse_distance = 0};
      Program step;
      train_threads(p, 1, [&](Program& program) {
        if (program.rank == 0) step = program;
      });
      int waiting = 0, ahead = 0;
      std::vector<size_t> made(step.buffers.size(), 0);  // by which instruction
      for (size_t i = 0; i < step.instrs.size(); ++i) {
        const Instr& in = step.instrs[i];
        if (!in.attrs.has("bucket")) continue;
        if (in.op == "all_gather" || in.op == "quantize") {
          size_t from = static_cast<size_t>(in.operands[0].buffer);
          // The first gather of a chain begins where its codes were made.
          made[static_cast<size_t>(in.operands[1].buffer)] = in.op == "quantize" ? i : made[from];
        }
        if (in.op != "dequantize") continue;
        size_t start = made[static_cast<size_t>(in.operands[0].buffer)];
        std::vector<std::string> between = ops_between(step, start, i);
        std::erase(between, "quantize");
        ++(between.empty() ? waiting : ahead);
      }
      EXPECT_GT(waiting + ahead, 8) << "nothing is gathered as codes";
      if (overlap) {
        EXPECT_GE(ahead, waiting + ahead - 2) << "of " << waiting + ahead;
      } else {
        EXPECT_EQ(ahead, 0);
      }
    }
  }
}

// ---- gradients ----

// Mean gradient after one step of `micros` micro-steps, in each of which every rank gives `leaf(rank)`.
std::vector<float> reduce(Config c, int world, const std::function<std::vector<float>(int)>& leaf,
                          int64_t steps = 1) {
  std::vector<float> out;
  run_ranks(world, [&](Communicator& comm) {
    DelegateEngine engine(c, comm, {});
    int32_t p = engine.add_param("w", {kRows, kColumns}, {});
    std::vector<float> mine = leaf(comm.rank());
    std::vector<float> sum(mine.size());
    for (int64_t s = 0; s < steps; ++s) {
      for (int64_t m = 0; m < c.accumulation; ++m) {
        engine.gather({&p, 1});
        engine.release({&p, 1});
        engine.grad_ready(p, mine.data(), DS_DTYPE_F32, static_cast<int64_t>(mine.size()));
        engine.end_micro_step();
      }
      engine.step();
      std::vector<float> mean = engine.read_tensor(p, "grad");
      for (size_t e = 0; e < sum.size(); ++e) sum[e] += mean[e];
    }
    if (comm.rank() == 0) out = sum;
  });
  return out;
}

struct Ways {
  int world;
  int64_t nodes, mics;
  std::vector<int> levels;
};
const Ways kWays[] = {
    {2, 1, -1, {2}}, {3, 1, -1, {3}}, {4, 2, -1, {2, 2}}, {8, 2, -1, {4, 2}}, {4, 1, 2, {2, 2}}};

// A constant is a code of its scale: if a level summed where it should average, or the other way round, this
// would be off by the size of a level.
TEST(QuantizedGradients, HaveTheRightScale) {
  for (const Ways& w : kWays) {
    for (int bits : {4, 8}) {
      for (int stage : {2, 3}) {
        if (w.mics > 0 && stage < 3) continue;
        for (bool tree : {false, true}) {
          if (tree && w.world == 3) continue;
          Config c = delegate_config(stage, w.world, w.nodes, 4);
          c.zero.mics_shard_size = w.mics;
          c.zero.quantized_gradients = true;
          c.zero.gradient_bits = bits;
          c.reproducible = tree;
          std::vector<float> mean =
              reduce(c, w.world, [](int) { return std::vector<float>(kRows * kColumns, 0.37f); });
          for (float g : mean) ASSERT_NEAR(static_cast<double>(g), 0.37, 1e-6) << w.world << " ranks";
        }
      }
    }
  }
}

// The sum of the errors that each level may make, from the scales of what it quantizes.
std::vector<double> reduction_bound(const Ways& w, const std::vector<std::vector<float>>& leaves, int bits) {
  double codes = bits == 8 ? 127 : 7;
  size_t numel = leaves[0].size();
  std::vector<std::vector<double>> have(leaves.size()), off(leaves.size(), std::vector<double>(numel));
  for (size_t r = 0; r < leaves.size(); ++r) have[r] = {leaves[r].begin(), leaves[r].end()};
  for (int ranks : w.levels) {  // groups of neighbours become one
    std::vector<std::vector<double>> sums, errors;
    for (size_t r = 0; r < have.size(); r += static_cast<size_t>(ranks)) {
      sums.emplace_back(numel);
      errors.emplace_back(numel);
      for (size_t k = r; k < r + static_cast<size_t>(ranks); ++k) {
        std::vector<double> reach = have[k];
        for (size_t e = 0; e < numel; ++e) reach[e] = std::abs(reach[e]) + off[k][e];
        std::vector<double> top = granule_tops(reach);
        for (size_t e = 0; e < numel; ++e) {
          sums.back()[e] += have[k][e];
          errors.back()[e] += off[k][e] + top[e] / codes / 2;
        }
      }
    }
    have = sums;
    off = errors;
  }
  return off[0];
}

TEST(QuantizedGradients, AreWithinTheErrorsOfTheirScales) {
  for (const Ways& w : kWays) {
    for (int bits : {4, 8}) {
      std::vector<std::vector<float>> leaves;
      for (int r = 0; r < w.world; ++r) leaves.push_back(random_values(10 + static_cast<uint64_t>(r), 1e-3));
      Config c = delegate_config(3, w.world, w.nodes);
      c.zero.mics_shard_size = w.mics;
      auto leaf = [&](int rank) { return leaves[static_cast<size_t>(rank)]; };
      std::vector<float> exact = reduce(c, w.world, leaf);
      c.zero.quantized_gradients = true;
      c.zero.gradient_bits = bits;
      std::vector<float> got = reduce(c, w.world, leaf);
      std::vector<double> bound = reduction_bound(w, leaves, bits);
      double most = 0;
      for (size_t e = 0; e < exact.size(); ++e) {
        double off = w.world * std::abs(static_cast<double>(got[e]) - static_cast<double>(exact[e]));
        ASSERT_LE(off, bound[e] * kRounding) << w.world << " ranks, " << bits << " bits, element " << e;
        most = std::max(most, off / bound[e]);
      }
      EXPECT_GT(most, 0.2) << "nothing is quantized";
    }
  }
}

// The same gradient again and again: without feedback the same is lost every time, with it no more than once.
TEST(QuantizedGradients, FeedbackGivesBackWhatWasLost) {
  const int64_t steps = 24;
  for (const Ways& w : kWays) {
    auto leaf = [&](int rank) { return random_values(30 + static_cast<uint64_t>(rank), 1e-3); };
    Config c = delegate_config(3, w.world, w.nodes);
    c.zero.mics_shard_size = w.mics;
    std::vector<float> exact = reduce(c, w.world, leaf, steps);
    auto squares = [&](double err_beta, int64_t reset) {
      Config q = c;
      q.zero.quantized_gradients = true;
      q.zero.error_feedback = err_beta >= 0;
      q.zero.err_beta = err_beta;
      q.zero.err_reset = reset;
      std::vector<float> got = reduce(q, w.world, leaf, steps);
      double sum = 0;
      for (size_t e = 0; e < got.size(); ++e)
        sum += std::pow(static_cast<double>(got[e]) - static_cast<double>(exact[e]), 2);
      return std::sqrt(sum);
    };
    double without = squares(-1, 1024), with = squares(0, 1024), slow = squares(0.8, 1024);
    EXPECT_LT(with, without / 10) << w.world << " ranks";
    EXPECT_LT(slow, without / 3) << w.world << " ranks";
    EXPECT_EQ(squares(0, 1), without) << "forgotten before every step";
  }
}

TEST(QuantizedGradients, NanSkipsTheStepAndIsForgotten) {
  for (int64_t nodes : {1, 2}) {
    run_ranks(4, [&](Communicator& comm) {
      Config c = delegate_config(2, 4, nodes);
      c.zero.quantized_gradients = c.zero.error_feedback = true;
      DelegateEngine engine(c, comm, {});
      std::vector<float> grad = random_values(3, 1e-3), bad = grad;
      if (comm.rank() == 3) bad[1234] = std::numeric_limits<float>::infinity();
      int32_t p = engine.add_param("w", {kRows, kColumns}, grad);
      for (bool good : {true, false, true}) {
        std::vector<float> before = engine.read_tensor(p, "master");
        const std::vector<float>& given = good ? grad : bad;
        engine.grad_ready(p, given.data(), DS_DTYPE_F32, static_cast<int64_t>(given.size()));
        engine.end_micro_step();
        if (good) {
          EXPECT_TRUE(std::isfinite(engine.step().grad_norm));
        } else {
          expect_names(message_of([&] { engine.step(); }, DS_ERROR_NUMERIC), {"skipped"});
        }
        EXPECT_EQ(engine.read_tensor(p, "master") == before, !good);
      }
    });
  }
}

// ---- training ----

// Tiers, overlap, threads, chaos, buckets, and stage 2 beside 3: the codes are those of granules.
TEST(QuantizedGradients, BitsDependOnNothingElse) {
  for (int64_t nodes : {1, 2}) {
    for (bool tree : {false, true}) {
      Point base{.stage = 2,
                 .world = 4,
                 .reproducible = tree,
                 .nodes = nodes,
                 .gradient_bits = 4,
                 .err_beta = 0.8,
                 .leaves = 16};
      std::string want = train_threads(base, 4).hash;
      for (int i = 1; i <= 6; ++i) {
        Point p = base;
        p.stage = 2 + i % 2;
        p.tier = static_cast<Tier>(i % 3);
        p.emulate = i % 4 != 1;
        p.overlap = i / 2 % 2 == 0;
        p.threads = 1 + i / 3;
        if (i > 1) p.chaos = static_cast<uint64_t>(i);
        if (i > 3) p.bucket_size = 4000;
        EXPECT_EQ(train_threads(p, 4).hash, want) << p.name();
      }
      Point exact = base;
      exact.gradient_bits = 0;
      exact.err_beta = -1;
      EXPECT_NE(train_threads(exact, 4).hash, want);
    }
  }
}

TEST(QuantizedWeights, BitsDependOnNothingElse) {
  Point base{.stage = 3, .world = 1, .reproducible = true, .quantized_weights = true, .leaves = 8};
  std::string want = train_threads(base, 4).hash;
  for (int i = 1; i <= 8; ++i) {
    Point p = base;
    p.world = i % 2 == 0 ? 4 : 2;
    p.nodes = i % 2 == 0 ? 2 : 1;
    if (i > 5) (i == 6 ? p.mics : p.hpz) = i < 8 ? 2 : 1;
    p.tier = static_cast<Tier>(i % 3);
    p.emulate = i % 4 != 1;
    p.overlap = i / 2 % 2 == 0;
    p.threads = 1 + i / 4;
    if (i > 1) p.chaos = static_cast<uint64_t>(i);
    if (i > 3) p.max_reuse_distance = 0;
    EXPECT_EQ(train_threads(p, 4).hash, want) << p.name();
  }
  Point exact = base;
  exact.quantized_weights = false;
  EXPECT_NE(train_threads(exact, 4).hash, want);
}

}  // namespace
}  // namespace ds::test
