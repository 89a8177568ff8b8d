#include "core/base/dtype.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "core/base/error.h"
#include "core/base/random.h"

namespace ds {
namespace {

TEST(DType, EveryTypeHasANameAndASize) {
  for (int i = 1; i <= 7; ++i) {
    auto dtype = static_cast<DType>(i);
    EXPECT_EQ(parse_dtype(dtype_name(dtype)), dtype);
    EXPECT_GT(size_of(dtype), 0);
  }
  EXPECT_EQ(size_of(DS_DTYPE_BF16), 2);
  EXPECT_EQ(size_of(DS_DTYPE_F64), 8);
  EXPECT_THROW(size_of(DS_DTYPE_NONE), Error);
  EXPECT_THROW(parse_dtype("f31"), Error);
}

// Returns the nearest bf16 by comparing the two neighbours in exact arithmetic; ties go to the even
// bit pattern.
uint16_t nearest_bf16(float x) {
  // `x` rounded towards zero.
  auto lower = static_cast<uint16_t>(std::bit_cast<uint32_t>(x) >> 16);
  auto upper = static_cast<uint16_t>(lower + 1);
  auto value = [](uint16_t bits) {
    // Beyond the largest finite bf16, the next value would be 2^128.
    if ((bits & 0x7fff) == 0x7f80) return std::copysign(0x1p128, (bits & 0x8000) ? -1.0 : 1.0);
    return static_cast<double>(std::bit_cast<float>(uint32_t{bits} << 16));
  };
  double to_lower = std::abs(double{x} - value(lower));
  double to_upper = std::abs(value(upper) - double{x});
  if (to_lower == to_upper) return lower % 2 == 0 ? lower : upper;
  return to_lower < to_upper ? lower : upper;
}

TEST(Bf16, RoundsToNearestEven) {
  for (uint32_t i = 0; i < 200000; ++i) {
    uint32_t bits = philox({i, 0, 0, 0}, {1, 2})[0];
    // A quarter of the values are exact ties.
    if (i % 4 == 0) bits = (bits & 0xffff0000u) | 0x8000u;
    auto x = std::bit_cast<float>(bits);
    if (!std::isfinite(x)) continue;
    ASSERT_EQ(bf16(x).bits, nearest_bf16(x)) << std::hexfloat << x;
  }
  EXPECT_EQ(bf16(1.0f + 0x1p-8f).bits, 0x3f80);      // A tie goes to the even number, here down.
  EXPECT_EQ(bf16(1.0f + 3 * 0x1p-8f).bits, 0x3f82);  // Here the even number is above.
  EXPECT_EQ(bf16(1.0f + 0x1p-8f + 0x1p-20f).bits, 0x3f81);  // This value is just above the tie.
}

TEST(Bf16, SpecialValuesAreConverted) {
  float inf = std::numeric_limits<float>::infinity();
  EXPECT_EQ(static_cast<float>(bf16(inf)), inf);
  EXPECT_EQ(static_cast<float>(bf16(-inf)), -inf);
  EXPECT_EQ(static_cast<float>(bf16(std::numeric_limits<float>::max())), inf);
  for (uint32_t nan : {0x7f800001u, 0xff800001u, 0x7fc00000u, 0x7fffffffu, 0xffffffffu}) {
    EXPECT_TRUE(std::isnan(static_cast<float>(bf16(std::bit_cast<float>(nan))))) << nan;
  }
  EXPECT_EQ(bf16(-0.0f).bits, 0x8000);
  EXPECT_EQ(bf16(std::numeric_limits<float>::denorm_min()).bits, 0);
  // Every bf16 number survives widening and rounding.
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    bf16 x;
    x.bits = static_cast<uint16_t>(bits);
    if (!std::isnan(static_cast<float>(x))) {
      ASSERT_EQ(bf16(static_cast<float>(x)).bits, bits);
    }
  }
}

}  // namespace
}  // namespace ds
