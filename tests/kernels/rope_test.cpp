// Compares rope frequencies with those of Hugging Face Transformers 5.23, which computes them in
// f32.
#include "kernels/formulas/rope.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>

namespace ds::test {
namespace {

constexpr int64_t kHeads = 4, kDepth = 16;

Attrs rope_attrs(std::string_view scaling, double factor, double low = 0, double high = 0) {
  Attrs attrs{{"heads", kHeads}, {"seq", int64_t{256}}, {"theta", 10000.0}};
  attrs.set("scaling", std::string(scaling));
  attrs.set("factor", factor);
  attrs.set("low", low);
  attrs.set("high", high);
  attrs.set("original", int64_t{64});
  return attrs;
}

void expect_frequencies(const Attrs& attrs, const std::array<double, 8>& want, int64_t length = 0) {
  Rope rope(attrs, kHeads * kDepth, length);
  ASSERT_EQ(rope.dims, kDepth);
  for (int64_t i = 0; i < 8; ++i) {
    double expected = want[static_cast<size_t>(i)];
    EXPECT_NEAR(rope.frequency(i), expected, 3e-7 * expected) << i;
  }
}

TEST(Rope, LinearScalingAgreesWithTransformers) {
  expect_frequencies(
      rope_attrs("linear", 4),
      {0.25, 0.07905694097280502, 0.02500000037252903, 0.007905694656074047, 0.0024999999441206455,
       0.0007905694656074047, 0.0002500000118743628, 7.905694656074047e-05});
}

TEST(Rope, Llama3ScalingAgreesWithTransformers) {
  expect_frequencies(
      rope_attrs("llama3", 8, 1, 4),
      {1.0, 0.24438458681106567, 0.013042256236076355, 0.0039528473280370235, 0.0012499999720603228,
       0.00039528473280370235, 0.0001250000059371814, 3.9528473280370235e-05});
}

TEST(Rope, YarnScalesFrequencyAndMagnitude) {
  Attrs attrs = rope_attrs("yarn", 4, 1, 32);
  expect_frequencies(attrs, {1.0, 0.23717081546783447, 0.04999999701976766, 0.007905694656074047,
                             0.0024999999441206455, 0.0007905694656074047, 0.0002500000118743628,
                             7.905694656074047e-05});
  EXPECT_NEAR(Rope(attrs, kHeads * kDepth).magnitude, 1.138629436111989, 1e-12);
}

// Three cases of yarn: the bounds of the ramp are not rounded to whole pairs; the original length
// is so short that no pair turns `low` times; and `low` is above `high`, for which Transformers
// only warns.
TEST(Rope, YarnHandlesUnusualBounds) {
  Attrs fine = rope_attrs("yarn", 4, 1, 32), brief = rope_attrs("yarn", 4, 4, 32),
        odd = rope_attrs("yarn", 4, 2, 1);
  fine.set("original", int64_t{2048});
  fine.set("truncate", int64_t{0});
  expect_frequencies(fine, {1.0, 0.3162277638912201, 0.10000000149011612, 0.02387019619345665,
                            0.005056971684098244, 0.0008112904615700245, 0.0002500000118743628,
                            7.905694656074047e-05});
  brief.set("original", int64_t{1});
  expect_frequencies(brief, {1.0, 0.3162277638912201, 0.10000000149011612, 0.03162277862429619,
                             0.009999999776482582, 0.003162277862429619, 0.0010000000474974513,
                             0.0003162277862429619});
  odd.set("original", int64_t{32});
  expect_frequencies(odd, {1.0, 0.3162277638912201, 0.02500000037252903, 0.007905694656074047,
                           0.0024999999441206455, 0.0007905694656074047, 0.0002500000118743628,
                           7.905694656074047e-05});
}

// The sequence length is that of the operand if there is one, otherwise `seq`.
TEST(Rope, DynamicScalingRaisesThetaBeyondTheOriginalLength) {
  const std::array<double, 8> at_64{1.0,
                                    0.3162277638912201,
                                    0.10000000149011612,
                                    0.03162277862429619,
                                    0.009999999776482582,
                                    0.003162277862429619,
                                    0.0010000000474974513,
                                    0.0003162277862429619},
      at_65{1.0,
            0.31350085139274597,
            0.09828278422355652,
            0.0308117363601923,
            0.00965950544923544,
            0.0030282631050795317,
            0.0009493631077930331,
            0.00029762613121420145},
      at_160{1.0,
             0.2394813448190689,
             0.05735132098197937,
             0.013734571635723114,
             0.003289173822849989,
             0.0007876958115957677,
             0.00018863845616579056,
             4.5175391278462484e-05};
  Attrs attrs = rope_attrs("dynamic", 4);
  attrs.set("power", 16.0 / 14);
  expect_frequencies(attrs, at_64, 1);
  expect_frequencies(attrs, at_64, 64);
  expect_frequencies(attrs, at_65, 65);
  expect_frequencies(attrs, at_160, 160);
  attrs.set("seq", int64_t{160});
  expect_frequencies(attrs, at_160);
  expect_frequencies(attrs, at_65, 65);
}

TEST(Rope, LongropeUsesLongFactorsBeyondTheOriginalLength) {
  const std::array<double, 8> at_64{1.0,
                                    0.3162277638912201,
                                    0.07999999821186066,
                                    0.021081849932670593,
                                    0.004999999888241291,
                                    0.0015811389312148094,
                                    0.00033333332976326346,
                                    7.905694656074047e-05},
      at_65{1.0,
            0.15811388194561005,
            0.02500000037252903,
            0.0039528473280370235,
            0.0006249999860301614,
            0.00013176158245187253,
            3.125000148429535e-05,
            6.520160241052508e-06};
  Attrs attrs = rope_attrs("longrope", 1);
  attrs.set("factors", "1 1 1.25 1.5 2 2 3 4");
  // long_factors is not set.
  expect_frequencies(attrs, at_64, 65);
  attrs.set("long_factors", "1 2 4 8 16 24 32 48.5");
  expect_frequencies(attrs, at_64, 64);
  expect_frequencies(attrs, at_65, 65);
  // The length is `seq`, which is 256.
  expect_frequencies(attrs, at_65);
  attrs.set("seq", int64_t{64});
  expect_frequencies(attrs, at_64);
  expect_frequencies(attrs, at_65, 200);
}

TEST(Rope, OnlyTheFirstHeadsOfEachPeriodAreRotated) {
  Attrs attrs{{"heads", int64_t{7}},  {"seq", int64_t{4}},     {"theta", 1e4},
              {"period", int64_t{3}}, {"rotated", int64_t{2}}, {"inverse", int64_t{1}}};
  Rope rope(attrs, 7 * kDepth);
  const bool want[] = {true, true, false, true, true, false, true};
  for (int64_t h = 0; h < 7; ++h) EXPECT_EQ(rope.turns(h), want[h]) << h;
  EXPECT_EQ(rope.frequency(0), -1);
  EXPECT_EQ(rope.first(3), 3);
  EXPECT_EQ(rope.distance(), kDepth / 2);
}

}  // namespace
}  // namespace ds::test
