// Tests AdamW with 8-bit states: the codes themselves, that a step follows the formula, that
// stochastic rounding is unbiased, and that training with codes learns as well as with f32 states.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "core/base/random.h"
#include "core/program/state_codes.h"
#include "support/conformance.h"

namespace ds::test {
namespace {

using Block = std::array<float, kStateBlock>;

struct Coded {
  std::array<uint8_t, kStateBlock> codes;
  uint8_t scale = 0;
};

Coded encoded(const Block& block, StateCodes kind) {
  Coded out;
  encode_block(block, kind, out.codes.data(), out.scale);
  return out;
}

Block decoded(const Coded& coded, StateCodes kind) {
  Block out;
  const StateScale scale(kind, coded.scale);
  for (size_t e = 0; e < out.size(); ++e) out[e] = decode_state(coded.codes[e], kind, scale);
  return out;
}

// Returns random magnitudes within about `octaves` octaves below 2^top, with alternating signs if
// the codes are signed.
Block random_block(StateCodes kind, int octaves, int top, uint64_t seed) {
  Block out;
  Tensor size = random_tensor(DS_DTYPE_F32, {kStateBlock}, seed),
         fine = random_tensor(DS_DTYPE_F32, {kStateBlock}, seed + 1);
  for (size_t e = 0; e < out.size(); ++e) {
    const auto at = static_cast<int64_t>(e);
    double x = std::exp2(top - octaves * std::abs(size.at(at))) * (1 + 0.37 * fine.at(at) / 1.7);
    out[e] = static_cast<float>(kind == StateCodes::with_sign && e % 2 == 1 ? -x : x);
  }
  return out;
}

TEST(StateCodes, EveryCodeOfEveryScaleRoundTrips) {
  for (StateCodes kind : {StateCodes::with_sign, StateCodes::squares}) {
    for (int scale = 0; scale < 255; ++scale) {
      const StateScale s(kind, static_cast<uint8_t>(scale));
      float before = -1;
      for (int code = 0; code <= s.top; ++code) {
        float x = decode_state(static_cast<uint8_t>(code), kind, s);
        ASSERT_TRUE(std::isfinite(x) && (code == 0 || std::fpclassify(x) == FP_NORMAL))
            << scale << " " << code;
        ASSERT_GT(x, before) << "codes ascend";
        before = x;
        for (uint32_t drawn : {0u, kToNearest, 0xfffffu})
          ASSERT_EQ(encode_state(x, kind, s, drawn), code)
              << scale << ": what a code says has no rounding";
        if (kind == StateCodes::squares || code == 0) continue;
        ASSERT_EQ(encode_state(-x, kind, s, kToNearest), code | 0x80);
      }
    }
  }
}

TEST(StateCodes, ErrorsAreAtMostASixteenth) {
  for (StateCodes kind : {StateCodes::with_sign, StateCodes::squares}) {
    const int octaves = kind == StateCodes::squares ? 31 : 15;
    for (int top : {-60, -3, 0, 90}) {
      Block x = random_block(kind, octaves - 1, top, 7), y = decoded(encoded(x, kind), kind);
      for (size_t e = 0; e < x.size(); ++e)
        ASSERT_NEAR(y[e], x[e], std::abs(x[e]) / 16) << top << " " << e;
    }
    // A value far below the block's largest becomes zero, or the smallest code if the state is a
    // divisor.
    Block far = {};
    far[0] = 1;
    far[1] = 1e-30f;
    const float least = decoded(encoded(far, kind), kind)[1];
    EXPECT_EQ(least > 0, kind == StateCodes::squares);
    EXPECT_EQ(decoded(encoded(far, kind), kind)[2], 0);
  }
}

// A checkpoint holds f32. Values that were read can be written and read again without change, even
// in parts.
TEST(StateCodes, ValuesSurviveAnyNumberOfTransfers) {
  for (StateCodes kind : {StateCodes::with_sign, StateCodes::squares}) {
    for (int octaves : {0, 5, 14, 40}) {
      for (int top : {-120, -40, 0, 100}) {
        const Block first = decoded(encoded(random_block(kind, octaves, top, 3), kind), kind);
        EXPECT_EQ(decoded(encoded(first, kind), kind), first) << octaves << " " << top;
        Block parts = {};
        for (size_t begin = 0; begin < first.size(); begin += 100) {
          std::copy(first.begin() + static_cast<int64_t>(begin),
                    first.begin() + static_cast<int64_t>(std::min(begin + 100, first.size())),
                    parts.begin() + static_cast<int64_t>(begin));
          parts = decoded(encoded(parts, kind), kind);
        }
        EXPECT_EQ(parts, first) << octaves << " " << top;
      }
    }
  }
}

TEST(StateCodes, InfinityAndNanArePreserved) {
  Block x = {};
  x[3] = std::numeric_limits<float>::infinity();
  x[4] = 3e38f;
  x[5] = std::numeric_limits<float>::quiet_NaN();
  for (StateCodes kind : {StateCodes::with_sign, StateCodes::squares}) {
    Block y = decoded(encoded(x, kind), kind);
    EXPECT_TRUE(std::isinf(y[3]) && std::isnan(y[5]));
    Block most = {};
    most[0] = std::numeric_limits<float>::max();
    EXPECT_TRUE(std::isfinite(decoded(encoded(most, kind), kind)[0]))
        << "nothing finite becomes infinite";
  }
}

std::vector<double> values(const Tensor& codes, const Tensor& scales, StateCodes kind) {
  std::vector<double> out;
  for (int64_t e = 0; e < codes.numel(); ++e) {
    const StateScale s(kind, scales.view().as<uint8_t>()[e / kStateBlock]);
    out.push_back(static_cast<double>(decode_state(codes.view().as<uint8_t>()[e], kind, s)));
  }
  return out;
}

class AdamwCodes : public testing::Test {
 protected:
  void SetUp() override { register_ref(registry_); }
  std::vector<Tensor> run(const InstructionCase& c) {
    return run_case(implementation(registry_, c.op, "ref"), c, team_);
  }
  KernelRegistry registry_;
  ThreadTeam team_{1};
};

TEST_F(AdamwCodes, FollowTheFormula) {
  int64_t moved = 0;
  for (const InstructionCase& c : instruction_cases()) {
    if (c.op != "adamw_codes") continue;
    std::vector<Tensor> out = run(c);
    if (c.scalars.skip) {
      for (size_t i = 0; i + 1 < out.size(); ++i) EXPECT_TRUE(out[i] == c.out[i]) << "output " << i;
      continue;
    }
    const GroupScalars& group = c.scalars.group;
    const double t = static_cast<double>(c.scalars.updates + 1);
    const bool l2 = c.attrs.integer("l2") != 0;
    const bool drawn = c.attrs.integer("stochastic") != 0, exact = c.out[0].dtype() == DS_DTYPE_F32;
    const std::vector<double> m0 = values(c.out[1], c.out[2], StateCodes::with_sign),
                              v0 = values(c.out[3], c.out[4], StateCodes::squares),
                              m1 = values(out[1], out[2], StateCodes::with_sign),
                              v1 = values(out[3], out[4], StateCodes::squares);
    for (int64_t e = 0; e < out[0].numel(); ++e) {
      const auto at = static_cast<size_t>(e);
      double p = c.out[0].at(e), g = c.in[0].at(e) * c.scalars.grad_scale;
      if (l2) g += group.weight_decay * p;
      if (!l2) p -= group.lr * group.weight_decay * p;
      const double m = group.beta1 * m0[at] + (1 - group.beta1) * g,
                   v = group.beta2 * v0[at] + (1 - group.beta2) * g * g;
      p -= group.lr * m / (1 - std::pow(group.beta1, t)) /
           (std::sqrt(v / (1 - std::pow(group.beta2, t))) + group.eps);
      EXPECT_NEAR(out[0].at(e), p, exact ? 1e-6 + 1e-6 * std::abs(p) : std::abs(p) / 128 + 1e-9);
      // Moments are close to their block's largest, so a code is off by at most an eighth, or by a
      // sixteenth if it is rounded to nearest.
      const double share = drawn ? 1.0 / 8 : 1.0 / 16;
      EXPECT_NEAR(m1[at], m, share * std::abs(m) + 3e-5);
      EXPECT_NEAR(v1[at], v, share * v + 1e-8);
      moved += out[0].at(e) != c.out[0].at(e) ? 1 : 0;
    }
  }
  EXPECT_GT(moved, 1000);
}

// A second moment that shrinks by a thousandth in every step does not change if it is rounded to
// nearest. With stochastic rounding it changes, on average, as in f32.
TEST_F(AdamwCodes, StochasticRoundingIsUnbiased) {
  constexpr int64_t kElements = 4096, kSteps = 200;
  for (int64_t stochastic : {0, 1}) {
    Tensor zero(DS_DTYPE_F32, {kElements}), codes(DS_DTYPE_U8, {kElements}),
        scales(DS_DTYPE_U8, {kElements / 256});
    Block ones;
    ones.fill(1);
    const Coded one = encoded(ones, StateCodes::squares);
    for (int64_t e = 0; e < kElements; ++e) codes.view().as<uint8_t>()[e] = one.codes[0];
    for (int64_t b = 0; b < kElements / 256; ++b) scales.view().as<uint8_t>()[b] = one.scale;
    InstructionCase c{"adamw_codes",
                      {{"l2", int64_t{0}}, {"stochastic", stochastic}},
                      {zero},
                      {zero, Tensor(DS_DTYPE_U8, {kElements}),
                       Tensor(DS_DTYPE_U8, {kElements / 256}), codes, scales, zero}};
    c.scalars.group = {.lr = 0, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8};
    for (int64_t step = 0; step < kSteps; ++step) {
      c.scalars.step = step;
      std::vector<Tensor> out = run(c);
      c.out[3] = out[3];
      c.out[4] = out[4];
    }
    double mean = 0;
    for (double v : values(c.out[3], c.out[4], StateCodes::squares)) mean += v / kElements;
    const double want = std::pow(0.999, kSteps);
    EXPECT_NEAR(mean, stochastic ? want : 1, 0.01) << stochastic;
    EXPECT_GT(1 - want, 0.15) << "the test sees a moment that stands still";
  }
}

// Trains a regression of 64 outputs on 32 inputs with one form of AdamW, and returns the expected
// loss. The gradients are noisy, and their magnitudes differ by octaves between outputs. With
// codes, the loss must be close to that with f32 states.
double regression(const KernelRegistry& registry, const char* op, int64_t stochastic,
                  uint64_t seed) {
  constexpr int64_t kIn = 32, kOut = 64, kBatch = 16, kSteps = 600;
  constexpr int64_t kElements = kIn * kOut;
  const bool codes = op[5] == '_';
  Tensor truth = random_tensor(DS_DTYPE_F32, {kElements}, seed);
  Tensor grad(DS_DTYPE_F32, {kElements}), w(DS_DTYPE_F32, {kElements});
  ThreadTeam team(1);
  const DType state = codes ? DS_DTYPE_U8 : DS_DTYPE_F32;
  InstructionCase c{op,
                    {{"l2", int64_t{0}}, {"stochastic", stochastic}},
                    {grad},
                    {w, Tensor(state, {kElements})}};
  if (codes) c.out.push_back(Tensor(state, {kElements / 256}));
  c.out.push_back(Tensor(state, {kElements}));
  if (codes) c.out.push_back(Tensor(state, {kElements / 256}));
  c.out.push_back(w);
  c.scalars.group = {.beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8};
  c.scalars.seed = seed;
  auto size_of_output = [](int64_t o) { return std::exp2(-static_cast<double>(o % 8)); };
  for (int64_t step = 0; step < kSteps; ++step) {
    Tensor x =
        random_tensor(DS_DTYPE_F32, {kBatch * kIn}, seed + 1000 + static_cast<uint64_t>(step));
    Tensor noise =
        random_tensor(DS_DTYPE_F32, {kBatch * kOut}, seed + 900000 + static_cast<uint64_t>(step));
    for (int64_t e = 0; e < kElements; ++e) c.in[0].set(e, 0);
    for (int64_t b = 0; b < kBatch; ++b) {
      for (int64_t o = 0; o < kOut; ++o) {
        double error = 0.5 * noise.at(b * kOut + o);
        for (int64_t i = 0; i < kIn; ++i)
          error += (c.out[0].at(o * kIn + i) - truth.at(o * kIn + i)) * x.at(b * kIn + i);
        for (int64_t i = 0; i < kIn; ++i) {
          float* g = c.in[0].view().as<float>() + o * kIn + i;
          *g += static_cast<float>(size_of_output(o) * error * x.at(b * kIn + i) / kBatch);
        }
      }
    }
    c.scalars.step = c.scalars.updates = step;
    c.scalars.group.lr = 0.02 * (1 - static_cast<double>(step) / kSteps);
    c.out = run_case(implementation(registry, op, "ref"), c, team);
  }
  // The inputs have the variance 1/3.
  double loss = 0;
  for (int64_t e = 0; e < kElements; ++e)
    loss += std::pow(c.out[0].at(e) - truth.at(e), 2) / (3 * kOut);
  return loss;
}

TEST_F(AdamwCodes, LearnAsF32StatesDo) {
  double f32 = 0, drawn = 0, nearest = 0;
  for (uint64_t seed : {1, 2}) {
    f32 += regression(registry_, "adamw", 0, seed) / 2;
    drawn += regression(registry_, "adamw_codes", 1, seed) / 2;
    nearest += regression(registry_, "adamw_codes", 0, seed) / 2;
  }
  RecordProperty("f32", std::to_string(f32));
  std::printf("expected loss above the noise: f32 states %.5f, codes drawn %.5f, to nearest %.5f\n",
              f32, drawn, nearest);
  EXPECT_LT(drawn, 1.1 * f32 + 1e-4);
}

}  // namespace
}  // namespace ds::test
