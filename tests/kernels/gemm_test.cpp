// Tests products with AVX512_BF16 and with AMX, as far as the machine has them. The bits of a bf16
// product must not depend on how the work is divided, and every element must be within the error
// bound of a plain f32 sum.
#include "kernels/gemm/gemm.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "core/base/random.h"
#include "core/device/cpu_features.h"
#include "support/dice.h"

namespace ds::test {
namespace {

class Gemm : public testing::TestWithParam<Isa> {
 protected:
  void SetUp() override {
    if (machine_isa() < GetParam()) GTEST_SKIP() << "this machine has no " << isa_name(GetParam());
  }
};
const auto kSets = testing::Values(Isa::avx512_bf16, Isa::amx);
std::string name_of(const testing::TestParamInfo<Isa>& info) { return isa_name(info.param); }
INSTANTIATE_TEST_SUITE_P(On, Gemm, kSets, name_of);

std::vector<bf16> random_values(int64_t count, uint32_t seed) {
  std::vector<bf16> out(static_cast<size_t>(count));
  RandomStream stream{seed, 0, 0, 0};
  for (size_t i = 0; i < out.size(); ++i) {
    out[i] = bf16(static_cast<float>(stream.block(i)[0] % 2001) / 1000.0f - 1.0f);
  }
  return out;
}

struct Problem {
  MatrixShape shape;
  std::vector<bf16> a, b, bias, c;

  // Creates random matrices. `apart` is the number of unused elements between two rows.
  Problem(int64_t m, int64_t n, int64_t k, bool transpose_a, bool transpose_b, bool with_bias,
          int64_t apart = 0)
      : shape{m,
              n,
              k,
              (transpose_a ? m : k) + apart,
              (transpose_b ? k : n) + apart,
              n + apart,
              transpose_a,
              transpose_b,
              with_bias,
              DS_DTYPE_BF16},
        a(random_values((transpose_a ? k : m) * shape.lda, 1)),
        b(random_values((transpose_b ? n : k) * shape.ldb, 2)),
        bias(random_values(n, 3)),
        c(static_cast<size_t>(m * shape.ldc)) {}

  std::vector<uint16_t> run(ThreadTeam& team, Isa isa) {
    std::fill(c.begin(), c.end(), bf16(std::nanf("")));
    gemm::multiply({shape, a.data(), b.data(), shape.bias ? bias.data() : nullptr, c.data()}, team,
                   isa);
    std::vector<uint16_t> bits(c.size());
    std::memcpy(bits.data(), c.data(), bits.size() * 2);
    return bits;
  }

  // Computes f32 results and rounds them to bf16 afterwards, including the elements between rows.
  std::vector<uint16_t> run_wide(ThreadTeam& team, Isa isa) const {
    MatrixShape wide = shape;
    wide.store = Store::wide;
    std::vector<float> sums(c.size(), std::nanf(""));
    gemm::multiply({wide, a.data(), b.data(), nullptr, sums.data()}, team, isa);
    std::vector<bf16> rounded(sums.begin(), sums.end());
    std::vector<uint16_t> bits(c.size());
    std::memcpy(bits.data(), rounded.data(), bits.size() * 2);
    return bits;
  }

  float at_a(int64_t i, int64_t k) const {
    return static_cast<float>(
        a[static_cast<size_t>(shape.transpose_a ? k * shape.lda + i : i * shape.lda + k)]);
  }
  float at_b(int64_t k, int64_t j) const {
    return static_cast<float>(
        b[static_cast<size_t>(shape.transpose_b ? j * shape.ldb + k : k * shape.ldb + j)]);
  }

  // Returns the largest error relative to a sum in f64, in units of the error bound of an f32 sum
  // of k terms that is then rounded to bf16.
  double worst() const {
    double most = 0;
    for (int64_t i = 0; i < shape.m; ++i) {
      for (int64_t j = 0; j < shape.n; ++j) {
        double sum = shape.bias ? static_cast<float>(bias[static_cast<size_t>(j)]) : 0,
               size = std::abs(sum);
        for (int64_t k = 0; k < shape.k; ++k) {
          double term = static_cast<double>(at_a(i, k)) * at_b(k, j);
          sum += term;
          size += std::abs(term);
        }
        double got = static_cast<float>(c[static_cast<size_t>(i * shape.ldc + j)]);
        double allowed =
            std::abs(sum) * 0x1p-8 + size * std::sqrt(static_cast<double>(shape.k)) * 0x1p-23;
        double off = std::abs(got - sum) / allowed;
        most = std::max(most, std::isnan(off) ? INFINITY : off);
      }
    }
    return most;
  }

  // Returns whether the elements between the rows of c still are the NaNs with which run() filled
  // c. No product of these matrices is NaN.
  bool between_rows_untouched() const {
    for (int64_t e = 0; e < shape.m * shape.ldc; ++e) {
      if (e % shape.ldc >= shape.n && !std::isnan(static_cast<float>(c[static_cast<size_t>(e)])))
        return false;
    }
    return true;
  }
};

TEST_P(Gemm, EveryLayoutAndEdgeIsWithinItsBound) {
  ThreadTeam team(2);
  struct Size {
    int64_t m, n, k;
  };
  for (Size s : {Size{1, 1, 1}, Size{8, 48, 2}, Size{9, 49, 3}, Size{37, 101, 70},
                 Size{70, 47, 1025}, Size{33, 130, 2051}, Size{7, 500, 33}, Size{257, 17, 64},
                 Size{64, 64, 512}, Size{48, 80, 96}, Size{40, 33, 545}, Size{16, 16, 32}}) {
    for (int layout = 0; layout < 8; ++layout) {
      Problem p(s.m, s.n, s.k, layout & 1, layout & 2, layout & 4);
      p.run(team, GetParam());
      EXPECT_LT(p.worst(), 1) << s.m << " x " << s.n << " x " << s.k << " layout " << layout;
    }
  }
}

TEST_P(Gemm, BitsDoNotDependOnThreadsOrScratch) {
  ThreadTeam one(1), many(5), tight(3, 64 << 10), tighter(2, 16 << 10);
  for (bool turned : {false, true}) {
    Problem p(203, 391, 2307, turned, !turned, true);
    const std::vector<uint16_t> want = p.run(one, GetParam());
    EXPECT_EQ(p.run(many, GetParam()), want);
    EXPECT_EQ(p.run(tight, GetParam()), want);
    EXPECT_EQ(p.run(tighter, GetParam()), want);
  }
}

// Checks f32 results and sums that continue from the contents of c. A product computed in two parts
// along k must have the same bits as the whole product; the first part is a multiple of the step
// along k of every instruction set.
TEST_P(Gemm, F32SumsContinueFromTheContentsOfC) {
  ThreadTeam team(2), tight(3, 16 << 10);
  for (bool turned : {false, true}) {
    Problem p(37, 101, 2306, turned, !turned, false);
    std::vector<float> whole(37 * 101, NAN), halves(whole);
    MatrixShape shape = p.shape;
    shape.store = Store::wide;
    gemm::multiply({shape, p.a.data(), p.b.data(), nullptr, whole.data()}, team, GetParam());
    shape.k = 1088;
    gemm::multiply({shape, p.a.data(), p.b.data(), nullptr, halves.data()}, team, GetParam());
    const bf16* a = p.a.data() + 1088 * (turned ? shape.lda : 1);
    const bf16* b = p.b.data() + 1088 * (turned ? shape.ldb : 1);
    shape.k = 2306 - 1088;
    shape.store = Store::added;
    std::vector<float> tightly = halves;
    gemm::multiply({shape, a, b, nullptr, halves.data()}, team, GetParam());
    gemm::multiply({shape, a, b, nullptr, tightly.data()}, tight, GetParam());
    EXPECT_EQ(halves, whole);
    EXPECT_EQ(tightly, whole);
    std::vector<uint16_t> rounded = p.run(team, GetParam());
    for (size_t e = 0; e < whole.size(); ++e) {
      bf16 once(whole[e]);
      ASSERT_EQ(std::memcmp(&once, &rounded[e], 2), 0) << e;
    }
  }
}

TEST_P(Gemm, BitsOfARowDoNotDependOnOtherRows) {
  ThreadTeam team(2);
  Problem whole(100, 96, 77, false, true, false), first(3, 96, 77, false, true, false);
  std::vector<uint16_t> all = whole.run(team, GetParam()), some = first.run(team, GetParam());
  EXPECT_TRUE(std::equal(some.begin(), some.end(), all.begin()));
}

// Draws shapes, layouts, row distances, scratch sizes and numbers of threads.
TEST_P(Gemm, RandomProductsHaveTheSameBitsForAnyDivision) {
  Dice dice(20261126);
  for (int turn = 0; turn < 60; ++turn) {
    int64_t m = 1 + dice.below(140), n = 1 + dice.below(200),
            k = 1 + dice.below(dice.one_in(4) ? 2200 : 300);
    Problem p(m, n, k, dice.one_in(2), dice.one_in(2), dice.one_in(2), dice.below(40));
    ThreadTeam one(1), some(1 + static_cast<int>(dice.below(4)), size_t{16} << 10 << dice.below(8));
    const std::vector<uint16_t> want = p.run(one, GetParam());
    ASSERT_LT(p.worst(), 1) << "turn " << turn << ": " << m << " x " << n << " x " << k;
    ASSERT_EQ(p.run(some, GetParam()), want)
        << "turn " << turn << ": " << m << " x " << n << " x " << k;
    ASSERT_TRUE(p.between_rows_untouched())
        << "turn " << turn << ": " << m << " x " << n << " x " << k;
    if (p.shape.bias) continue;
    ASSERT_EQ(p.run_wide(some, GetParam()), want)
        << "turn " << turn << ": " << m << " x " << n << " x " << k;
  }
}

class GemmCut : public testing::TestWithParam<Isa> {};
INSTANTIATE_TEST_SUITE_P(On, GemmCut, kSets, name_of);

TEST_P(GemmCut, BlocksFitIntoTheScratch) {
  const bool tiles = GetParam() == Isa::amx;
  const int64_t step = tiles ? 32 : 2, columns = tiles ? 32 : 48;
  for (size_t scratch : {size_t{tiles ? 16u : 8u} << 10, size_t{64} << 10, size_t{2} << 20}) {
    for (int64_t k : {1, 768, 3072, 50257}) {
      MatrixShape shape{2048, 768, k, k, k, 768, false, true, false, DS_DTYPE_BF16};
      gemm::Cut cut = gemm::cut_product(shape, 2, scratch, GetParam());
      int64_t bytes = cut.width * cut.depth * 2 + 32 * cut.depth * 2 +
                      (k > cut.depth ? cut.rows * cut.width * 4 : 0);
      EXPECT_LE(bytes, static_cast<int64_t>(scratch)) << k;
      EXPECT_EQ(cut.depth % step, 0);
      EXPECT_EQ(cut.width % columns, 0);
      EXPECT_EQ(cut.rows % 32, 0);
    }
  }
}

}  // namespace
}  // namespace ds::test
