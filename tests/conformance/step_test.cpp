// Compares the instructions `losses` and `clip`, which decide whether a step is skipped, with their
// definitions in docs/reference/ops.md.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "core/base/random.h"
#include "kernels/kernel.h"

namespace ds::test {
namespace {

class Step : public testing::Test {
 protected:
  StepScalars run(const char* op, const Attrs& attrs, TensorView in, StepScalars before,
                  const std::vector<ElementRun>& runs = {}) {
    alignas(64) std::byte block[256] = {};
    auto* scalars = new (block) StepScalars(before);
    TensorView out{block, DS_DTYPE_U8, 1, {256, 1, 1, 1}};
    DType type = in.dtype, u8 = DS_DTYPE_U8;
    KernelFn kernel = registry_.find({op, {&type, 1}, {&u8, 1}, attrs}).run;
    kernel({{&in, 1}, {&out, 1}, attrs, *scalars, 0, team_, runs});
    return *scalars;
  }
  StepScalars losses(std::vector<float>& all, int64_t micros, int64_t unit = 0) {
    Attrs attrs{{"micros", micros}};
    if (unit > 0) attrs.set("unit", unit);
    return run("losses", attrs, {all.data(), DS_DTYPE_F32, 1, {std::ssize(all), 1, 1, 1}}, {});
  }
  StepScalars clip(std::vector<double>& squares, double max_norm, StepScalars before,
                   const std::vector<ElementRun>& runs = {}) {
    return run("clip", {{"max_norm", max_norm}},
               {squares.data(), DS_DTYPE_F64, 1, {std::ssize(squares), 1, 1, 1}}, before, runs);
  }
  double random() { return stream_.block(draws_++)[0] * 0x1p-32; }

  KernelRegistry registry_ = built_in_kernels();
  ThreadTeam team_{3};
  RandomStream stream_{3, 0, 0, 0};
  uint64_t draws_ = 0;
};

TEST_F(Step, LossesAreMeansOfTheExistingLeaves) {
  for (int64_t ranks : {1, 2, 5}) {
    for (int64_t micros : {1, 3}) {
      std::vector<float> all(static_cast<size_t>(ranks * micros));
      double sum = 0;
      int64_t leaves = 0;
      for (int64_t m = 0; m < micros; ++m) {
        for (int64_t r = 0; r < ranks; ++r) {
          bool absent = r > 0 && random() < 0.3;
          auto loss = static_cast<float>(random());
          all[static_cast<size_t>(r * micros + m)] = absent ? std::bit_cast<float>(kNoLeaf) : loss;
          sum += absent ? 0 : loss;
          leaves += !absent;
        }
      }
      StepScalars found = losses(all, micros);
      EXPECT_EQ(found.leaves, leaves);
      EXPECT_EQ(found.weight, static_cast<double>(leaves));
      EXPECT_EQ(found.loss, sum / static_cast<double>(leaves));
    }
  }
  std::vector<float> none(3, std::bit_cast<float>(kNoLeaf));
  EXPECT_EQ(losses(none, 1).leaves, 0);
  EXPECT_TRUE(std::isnan(losses(none, 1).loss));
}

// The weights of a rank's leaves follow its losses. The loss of a leaf with weight 0 is ignored,
// even if it is NaN.
TEST_F(Step, LossesAreWeightedMeans) {
  const float absent = std::bit_cast<float>(kNoLeaf), nan = std::numeric_limits<float>::quiet_NaN();
  // Two ranks with two micro-steps each.
  std::vector<float> all{1, nan, 3, 0, absent, 2, 7, 5};
  StepScalars found = losses(all, 2, 4);
  EXPECT_EQ(found.leaves, 3);
  EXPECT_EQ(found.loss, (3 * 1 + 5 * 2) / 8.0);
  EXPECT_EQ(found.weight, 8 / 4.0);
  std::vector<float> nothing{1, 0};
  found = losses(nothing, 1, 4);
  EXPECT_EQ(found.leaves, 1);
  EXPECT_EQ(found.weight, 0);
  EXPECT_TRUE(std::isnan(found.loss));
}

TEST_F(Step, ClipSkipsAStepWithoutWeight) {
  std::vector<double> squares{9, 16};
  for (double unchecked : {0, 1}) {
    StepScalars before;
    before.weight = 0;
    before.loss = 1;
    Attrs attrs{{"max_norm", 0.0}, {"unchecked", static_cast<int64_t>(unchecked)}};
    const StepScalars found =
        run("clip", attrs, {squares.data(), DS_DTYPE_F64, 1, {2, 1, 1, 1}}, before);
    EXPECT_EQ(found.skip, 1);
    EXPECT_EQ(found.grad_norm, 5);
  }
}

TEST_F(Step, ClipUsesTheNormAndSkipsNonFiniteSteps) {
  std::vector<double> squares{9, 16};
  StepScalars before;
  before.weight = 2;
  before.loss = 1;
  StepScalars free = clip(squares, 0, before), kept = clip(squares, 3, before),
              cut = clip(squares, 1, before);
  EXPECT_EQ(free.grad_norm, 2.5);
  EXPECT_EQ(free.grad_scale, 0.5);
  EXPECT_EQ(kept.grad_scale, 0.5);
  EXPECT_EQ(cut.grad_scale, 1 / (2.5 + 1e-6) / 2);
  EXPECT_EQ(cut.skip, 0);
  squares[1] = std::numeric_limits<double>::infinity();
  EXPECT_EQ(clip(squares, 1, before).skip, 1);
  squares[1] = 16;
  before.loss = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(clip(squares, 1, before).skip, 1);
}

// The norm sums blocks of 256 granules, then blocks of 256 of these sums, and so on. Up to 256
// granules it is a plain sum.
TEST_F(Step, TheNormAddsByBlocks) {
  for (int64_t count :
       {0, 1, 255, 256, 257, 65536, 65537, 70000, 3 * 65536 + 256, 66 * 65536 + 300}) {
    std::vector<double> squares(static_cast<size_t>(count));
    for (double& x : squares) x = std::exp(20 * random());
    std::vector<double> level = squares;
    while (level.size() > 1) {
      std::vector<double> next;
      for (size_t i = 0; i < level.size(); ++i) {
        if (i % 256 == 0) next.push_back(0);
        next.back() += level[i];
      }
      level = next;
    }
    StepScalars before;
    before.weight = 1;
    EXPECT_EQ(clip(squares, 0, before).grad_norm, std::sqrt(count == 0 ? 0 : level[0])) << count;
  }
}

// The norm adds granules in the order of the runs: its bits equal those of the norm of the same
// values in that order.
TEST_F(Step, TheNormFollowsTheOrderOfItsRuns) {
  for (int64_t count : {5, 300, 70000, 400000}) {
    std::vector<double> squares(static_cast<size_t>(count)), ordered;
    for (double& x : squares) x = std::exp(20 * random());
    std::vector<ElementRun> runs;
    for (int64_t end = count; end > 0;) {
      int64_t begin = std::max<int64_t>(0, end - 1 - static_cast<int64_t>(random() * 400));
      runs.push_back({begin, end, 0});
      ordered.insert(ordered.end(), squares.begin() + begin, squares.begin() + end);
      end = begin;
    }
    StepScalars before;
    before.weight = 1;
    StepScalars found = clip(squares, 0, before, runs);
    EXPECT_EQ(found.grad_norm, clip(ordered, 0, before).grad_norm) << count;
    double exact = std::sqrt(std::accumulate(squares.begin(), squares.end(), 0.0L));
    EXPECT_NEAR(found.grad_norm / exact, 1, 1e-13);
  }
}

}  // namespace
}  // namespace ds::test
