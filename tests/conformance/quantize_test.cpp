// Tests codes of granules: their errors, the treatment of awkward values and of the error feedback,
// and equal bits of all kernels.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "core/program/codes.h"
#include "support/conformance.h"

namespace ds::test {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

Tensor poisoned(DType dtype, int64_t numel) {
  Tensor t(dtype, {numel});
  t.poison();
  return t;
}

// Returns granules whose values differ by many powers of two; granule k is multiplied by 4^-k.
Tensor spread(int64_t granules, uint64_t seed) {
  Tensor x = random_tensor(DS_DTYPE_F32, {granules * kGranule}, seed);
  for (int64_t e = 0; e < x.numel(); ++e)
    x.set(e, x.at(e) * std::ldexp(1.0003, static_cast<int>(-2 * (e / kGranule) - e % 7)));
  return x;
}

class Quantize : public testing::Test {
 protected:
  void SetUp() override {
    register_cpu(cpu_);
    register_ref(ref_);
  }

  // Runs the reference and checks that the optimized kernel has the same bits with any team.
  std::vector<Tensor> run(const std::string& op, const Attrs& attrs, const std::vector<Tensor>& in,
                          const std::vector<Tensor>& out, int64_t step = 1, int64_t skip = 0) {
    InstructionCase c{op, attrs, in, out};
    c.scalars.step = step;
    c.scalars.skip = skip;
    std::vector<Tensor> want = run_case(implementation(ref_, op, "ref"), c, one_);
    EXPECT_TRUE(run_case(implementation(cpu_, op, "cpu"), c, one_) == want) << op << attrs.print();
    EXPECT_TRUE(run_case(implementation(cpu_, op, "cpu"), c, three_) == want)
        << op << attrs.print();
    return want;
  }
  Tensor codes(const Tensor& x, int64_t bits) {
    return run("quantize", {{"bits", bits}}, {x},
               {poisoned(DS_DTYPE_U8, code_bytes(x.numel(), bits))})[0];
  }
  Tensor values(const Tensor& codes, int64_t bits, int64_t numel, DType to = DS_DTYPE_F32) {
    return run("dequantize", {{"bits", bits}}, {codes}, {poisoned(to, numel)})[0];
  }
  // Returns the new error and the values after one step with error feedback.
  std::pair<Tensor, Tensor> feed_back(const Tensor& x, const Tensor& error, int64_t bits,
                                      const Attrs& how, int64_t step = 1, int64_t skip = 0) {
    Attrs attrs = how;
    attrs.set("bits", bits);
    std::vector<Tensor> out =
        run("quantize", attrs, {x}, {error, poisoned(DS_DTYPE_U8, code_bytes(x.numel(), bits))},
            step, skip);
    return {out[0], values(out[1], bits, x.numel())};
  }

  KernelRegistry cpu_, ref_;
  ThreadTeam one_{1}, three_{3};
};

float scale_of(const Tensor& codes, int64_t bits, int64_t granule) {
  float scale;
  std::memcpy(&scale, codes.bytes().data() + granule * granule_code_bytes(bits), sizeof scale);
  return scale;
}

// Returns half a step of the codes, plus the rounding errors of the quotient (which is at most the
// largest code) and of the product.
double bound(float scale, int64_t bits) {
  return scale * (0.5 + static_cast<double>(largest_code(bits)) * 0x1p-22);
}

TEST_F(Quantize, IsOffByAtMostHalfAScale) {
  // This number of granules is divided into several tasks.
  const int64_t granules = 150;
  for (DType type : {DS_DTYPE_F32, DS_DTYPE_BF16, DS_DTYPE_F16}) {
    Tensor x = spread(granules, 1).as(type);
    for (int64_t bits : {8, 4}) {
      Tensor c = codes(x, bits), y = values(c, bits, x.numel());
      for (int64_t g = 0; g < granules; ++g) {
        double top = 0, off = 0;
        for (int64_t e = g * kGranule; e < (g + 1) * kGranule; ++e) {
          top = std::max(top, std::abs(x.at(e)));
          off = std::max(off, std::abs(x.at(e) - y.at(e)));
        }
        float scale = scale_of(c, bits, g);
        EXPECT_FLOAT_EQ(scale,
                        std::max(static_cast<float>(top / static_cast<double>(largest_code(bits))),
                                 kLeastScale));
        EXPECT_LE(off, bound(scale, bits)) << "granule " << g << " bits " << bits;
        // f16 has few subnormal numbers, and codes may represent all of them.
        bool few = type == DS_DTYPE_F16 && top < 0x1p-14;
        EXPECT_TRUE(off > scale / 4 || scale == kLeastScale || few) << "no step of " << scale;
      }
      EXPECT_TRUE(values(c, bits, x.numel(), DS_DTYPE_BF16) == y.as(DS_DTYPE_BF16));
    }
  }
}

TEST_F(Quantize, ZerosAndCodesAreExact) {
  for (int64_t bits : {8, 4}) {
    Tensor x(DS_DTYPE_F32, {2 * kGranule});
    EXPECT_TRUE(values(codes(x, bits), bits, x.numel()) == x);
    // The values have every code and a scale of 1/2.
    int64_t top = largest_code(bits);
    for (int64_t e = 0; e < x.numel(); ++e)
      x.set(e, 0.5 * static_cast<double>(e == 0 ? -top : e % (2 * top + 1) - top));
    Tensor y = values(codes(x, bits), bits, x.numel());
    for (int64_t e = 0; e < x.numel(); ++e) EXPECT_EQ(y.at(e), x.at(e)) << e;
  }
}

TEST_F(Quantize, HandlesSubnormalAndLargestNumbers) {
  for (int64_t bits : {8, 4}) {
    Tensor x(DS_DTYPE_F32, {2 * kGranule});
    for (int64_t e = 0; e < kGranule; ++e) x.set(e, 0x1p-149 * static_cast<double>(e * e));
    for (int64_t e = kGranule; e < 2 * kGranule; ++e) x.set(e, e % 2 == 0 ? 3.402e38 : -3e38);
    Tensor c = codes(x, bits), y = values(c, bits, x.numel());
    for (int64_t e = 0; e < x.numel(); ++e) {
      EXPECT_TRUE(std::isfinite(y.at(e)));
      EXPECT_LE(std::abs(x.at(e) - y.at(e)), bound(scale_of(c, bits, e / kGranule), bits)) << e;
    }
  }
}

// NaN or infinity affects its whole granule and no other. With error feedback, the granule's error
// is reset to 0.
TEST_F(Quantize, NanAndInfinityArePreserved) {
  for (float bad : {kInf, -kInf, std::nanf("")}) {
    for (int64_t bits : {8, 4}) {
      Tensor x = random_tensor(DS_DTYPE_F32, {3 * kGranule}, 5), error = spread(3, 6);
      x.set(kGranule + 77, static_cast<double>(bad));
      Tensor plain = values(codes(x, bits), bits, x.numel());
      auto [after, fed] = feed_back(x, error, bits, {{"err_beta", 0.5}});
      Tensor twice(DS_DTYPE_U8, {2 * code_bytes(x.numel(), bits)});
      for (int64_t r = 0; r < 2; ++r) {
        Tensor c = codes(r == 0 ? x : error, bits);
        std::memcpy(twice.bytes().data() + r * c.numel(), c.bytes().data(),
                    static_cast<size_t>(c.numel()));
      }
      Tensor sum = run("dequantize_sum", {{"bits", bits}, {"ranks", int64_t{2}}}, {twice},
                       {poisoned(DS_DTYPE_F32, x.numel())})[0];
      for (int64_t e = 0; e < x.numel(); ++e) {
        bool hit = e / kGranule == 1;
        EXPECT_EQ(std::isnan(plain.at(e)), hit) << e;
        EXPECT_EQ(std::isnan(fed.at(e)), hit) << e;
        EXPECT_EQ(std::isnan(sum.at(e)), hit) << e;
        EXPECT_TRUE(!hit || after.at(e) == 0) << e;
      }
    }
  }
}

TEST_F(Quantize, SumsInTheOrderOfAReduction) {
  const int64_t numel = 2 * kGranule;
  for (int64_t bits : {8, 4}) {
    for (int64_t ranks : {1, 2, 3, 5, 6, 7, 8, 11, 64}) {
      Tensor all(DS_DTYPE_U8, {ranks * code_bytes(numel, bits)});
      std::vector<Tensor> level;
      for (int64_t r = 0; r < ranks; ++r) {
        Tensor c = codes(spread(2, static_cast<uint64_t>(20 + r)), bits);
        std::memcpy(all.bytes().data() + r * c.numel(), c.bytes().data(),
                    static_cast<size_t>(c.numel()));
        level.push_back(values(c, bits, numel));
      }
      // Neighbours are added. The last one of an odd number is carried up.
      while (level.size() > 1) {
        std::vector<Tensor> next;
        for (size_t i = 0; i < level.size(); i += 2) {
          next.push_back(level[i]);
          for (int64_t e = 0; i + 1 < level.size() && e < numel; ++e) {
            next.back().set(e, static_cast<double>(static_cast<float>(level[i].at(e)) +
                                                   static_cast<float>(level[i + 1].at(e))));
          }
        }
        level = std::move(next);
      }
      Tensor sum = run("dequantize_sum", {{"bits", bits}, {"ranks", ranks}}, {all},
                       {poisoned(DS_DTYPE_F32, numel)})[0];
      EXPECT_TRUE(sum == level[0]) << ranks << " ranks, " << bits << " bits";
    }
  }
}

// With err_beta 0, the error is exactly what was lost, so that values plus error equal the input.
TEST_F(Quantize, ErrorEqualsTheLoss) {
  for (int64_t bits : {8, 4}) {
    // The error is not read in a step that resets it, so it may be NaN.
    Tensor error = poisoned(DS_DTYPE_F32, 70 * kGranule);
    std::vector<double> given(static_cast<size_t>(error.numel())), received(given.size());
    for (int64_t step = 0; step < 8; ++step) {
      // Every step has these values: without feedback, the same part would be lost every time.
      Tensor x = spread(70, 2);
      Tensor y;
      std::tie(error, y) =
          feed_back(x, error, bits, {{"err_beta", 0.0}, {"reset", int64_t{8}}}, step);
      for (int64_t e = 0; e < x.numel(); ++e) {
        given[static_cast<size_t>(e)] += x.at(e);
        received[static_cast<size_t>(e)] += y.at(e);
      }
    }
    for (int64_t e = 0; e < error.numel(); ++e) {
      double sum = given[static_cast<size_t>(e)];
      EXPECT_NEAR(received[static_cast<size_t>(e)] + error.at(e), sum, 1e-5 * std::abs(sum) + 1e-37)
          << e;
    }
  }
}

TEST_F(Quantize, ErrorDecaysByErrBetaAndIsReset) {
  const int64_t bits = 4;
  Tensor x = spread(3, 7), error = spread(3, 8), zero(DS_DTYPE_F32, {x.numel()});
  for (int64_t e = 0; e < error.numel(); ++e) error.set(e, error.at(e) / 16);
  auto [after, y] = feed_back(x, error, bits, {{"err_beta", 0.8}, {"reset", int64_t{10}}}, 11);
  for (int64_t e = 0; e < x.numel(); ++e) {
    double want = 0.8 * error.at(e) + 0.2 * (x.at(e) + error.at(e) - y.at(e));
    EXPECT_NEAR(after.at(e), want, 1e-6 * std::abs(x.at(e)) + 1e-7 * std::abs(error.at(e)));
  }
  auto [reset, first] = feed_back(x, error, bits, {{"err_beta", 0.8}, {"reset", int64_t{10}}}, 20);
  auto [clean, same] = feed_back(x, zero, bits, {{"err_beta", 0.8}}, 20);
  EXPECT_TRUE(first == same);
  EXPECT_TRUE(reset == clean);
  EXPECT_FALSE(y == first);
}

// A granule of zeros has nothing to send and keeps its error. A skipped step also keeps its error
// and sends the same values when it runs again.
TEST_F(Quantize, ErrorsAreKeptWithoutValuesAndInSkippedSteps) {
  for (int64_t bits : {8, 4}) {
    Attrs how{{"err_beta", 0.8}, {"reset", int64_t{10}}};
    Tensor x = spread(3, 7), error = spread(3, 8);
    for (int64_t e = kGranule; e < 2 * kGranule; ++e) x.set(e, e % 2 == 0 ? 0.0 : -0.0);
    auto [after, y] = feed_back(x, error, bits, how, 11);
    for (int64_t e = 0; e < x.numel(); ++e) {
      bool idle = e / kGranule == 1;
      EXPECT_EQ(after.at(e) == error.at(e), idle) << e;
      EXPECT_TRUE(!idle || y.at(e) == 0) << e;
    }
    auto [reset, zero] = feed_back(x, error, bits, how, 20);
    for (int64_t e = kGranule; e < 2 * kGranule; ++e) EXPECT_EQ(reset.at(e), 0) << e;
    auto [kept, again] = feed_back(x, error, bits, how, 11, 1);
    EXPECT_TRUE(kept == error);
    EXPECT_TRUE(again == y);
  }
}

}  // namespace
}  // namespace ds::test
