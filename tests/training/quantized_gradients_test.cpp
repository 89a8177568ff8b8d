// Tests ZeRO++ gradients that are reduced as codes: the error and scale of sums, and that nothing
// else affects their bits.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "core/base/error.h"
#include "engine/delegate.h"
#include "support/errors.h"
#include "support/ranks.h"
#include "support/same_bits.h"
#include "training/granule_values.h"

namespace ds::test {
namespace {

// Returns the mean gradients, summed over `steps` steps. In every micro-step each rank contributes
// `leaf(rank)`.
std::vector<float> reduce(Config c, int world, const std::function<std::vector<float>(int)>& leaf,
                          int64_t steps = 1) {
  std::vector<float> out;
  run_ranks(world, [&](Communicator& comm) {
    DelegateEngine engine(c, comm, {});
    ParamId p = engine.add_param("w", {kRows, kColumns});
    engine.start();
    std::vector<float> mine = leaf(comm.rank());
    std::vector<float> sum(mine.size());
    for (int64_t s = 0; s < steps; ++s) {
      for (int64_t m = 0; m < c.accumulation; ++m) {
        engine.gather({&p, 1});
        engine.release({&p, 1});
        engine.grad_ready(ParamId(p),
                          {mine.data(), DS_DTYPE_F32, static_cast<int64_t>(mine.size())});
        engine.end_micro_step();
      }
      engine.step();
      std::vector<float> mean = engine.store().read_tensor(ParamId(p), "grad");
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

// Codes represent a constant up to the rounding of f32. If a level summed instead of averaging, or
// averaged instead of summing, the result would be off by the level's number of ranks.
TEST(QuantizedGradients, AreAveragedOnceOverAllRanks) {
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
          for (float g : mean)
            ASSERT_NEAR(static_cast<double>(g), 0.37, 1e-6) << w.world << " ranks";
        }
      }
    }
  }
}

// Returns a bound of the error of each element: the sum over levels of what quantization may lose,
// from the scales of the quantized values.
std::vector<double> reduction_bound(const Ways& w, const std::vector<std::vector<float>>& leaves,
                                    int bits) {
  double codes = bits == 8 ? 127 : 7;
  size_t numel = leaves[0].size();
  std::vector<std::vector<double>> have(leaves.size()),
      off(leaves.size(), std::vector<double>(numel));
  for (size_t r = 0; r < leaves.size(); ++r) have[r] = {leaves[r].begin(), leaves[r].end()};
  // Each level joins groups of neighbouring ranks.
  for (int ranks : w.levels) {
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
      for (int r = 0; r < w.world; ++r)
        leaves.push_back(random_values(10 + static_cast<uint64_t>(r), 1e-3));
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
        double off =
            w.world * std::abs(static_cast<double>(got[e]) - static_cast<double>(exact[e]));
        ASSERT_LE(off, bound[e] * kRounding)
            << w.world << " ranks, " << bits << " bits, element " << e;
        most = std::max(most, off / bound[e]);
      }
      EXPECT_GT(most, 0.2) << "nothing is quantized";
    }
  }
}

// Every step has the same gradient. Without feedback, the same error is lost in every step; with
// feedback, errors do not add up.
TEST(QuantizedGradients, FeedbackCorrectsQuantizationErrors) {
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
      ParamId p = engine.add_param("w", {kRows, kColumns});
      engine.start();
      for (bool good : {true, false, true}) {
        std::vector<float> before = engine.store().read_tensor(ParamId(p), "master");
        const std::vector<float>& given = good ? grad : bad;
        engine.grad_ready(ParamId(p),
                          {given.data(), DS_DTYPE_F32, static_cast<int64_t>(given.size())});
        engine.end_micro_step();
        StepResult result = engine.step();
        EXPECT_EQ(std::isfinite(result.grad_norm), good);
        EXPECT_EQ(result.skipped, !good);
        EXPECT_EQ(result.reason.empty(), good);
        EXPECT_EQ(engine.store().read_tensor(ParamId(p), "master") == before, !good);
      }
    });
  }
}

// Varies tiers, overlap, threads, chaos, buckets, and stages 2 and 3: codes depend on granules
// alone.
TEST(QuantizedGradients, BitsDoNotDependOnStagesTiersOrBuckets) {
  for (int64_t nodes : {1, 2}) {
    Point base{.stage = 2,
               .world = 4,
               .reproducible = nodes == 2,
               .nodes = nodes,
               .gradient_bits = 4,
               .err_beta = 0.8,
               .leaves = 16};
    Outcome want = train_threads(base, 4);
    for (int i = 1; i <= 6; ++i) {
      Point p = base;
      p.stage = 2 + i % 2;
      p.tier = static_cast<Tier>(i % 3);
      p.emulate = i % 4 != 1;
      p.overlap = i / 2 % 2 == 0;
      p.threads = 1 + i / 3;
      if (i > 1) (i % 3 == 0 ? p.separate : p.chaos) = static_cast<uint64_t>(i);
      if (i > 3) p.bucket_size = 4000;
      EXPECT_EQ(train_threads(p, 4).bits(), want.bits()) << p.name();
    }
    Point exact = base;
    exact.gradient_bits = 0;
    exact.err_beta = -1;
    EXPECT_NE(train_threads(exact, 4).hash, want.hash);
  }
}

}  // namespace
}  // namespace ds::test
