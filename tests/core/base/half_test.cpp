#include "core/base/half.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

namespace ds {
namespace {

// The value by the format's definition.
double half_value(uint16_t bits) {
  int exponent = bits >> 10 & 31, fraction = bits & 1023;
  double magnitude = exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, exponent - 25);
  return (bits & 0x8000) != 0 ? -magnitude : magnitude;
}

TEST(Half, EveryPatternWidensToItsValueAndBack) {
  for (uint32_t i = 0; i < 0x10000; ++i) {
    auto bits = static_cast<uint16_t>(i);
    float wide = widen_half(bits);
    if ((bits & 0x7c00) == 0x7c00 && (bits & 0x3ff) != 0) {
      EXPECT_TRUE(std::isnan(wide));
      EXPECT_TRUE(std::isnan(widen_half(narrow_half(wide))));
      continue;
    }
    if ((bits & 0x7c00) == 0x7c00) {
      EXPECT_EQ(std::fabs(wide), std::numeric_limits<float>::infinity());
    } else {
      ASSERT_EQ(wide, half_value(bits)) << bits;
    }
    ASSERT_EQ(narrow_half(wide), bits);
  }
}

TEST(Half, RoundsToNearestEven) {
  for (uint16_t bits = 0; bits < 0x7bff; ++bits) {
    float low = widen_half(bits), high = widen_half(static_cast<uint16_t>(bits + 1));
    float middle = (low + high) / 2;  // exact in f32
    auto even = static_cast<uint16_t>(bits + (bits & 1));
    ASSERT_EQ(narrow_half(middle), even) << bits;
    ASSERT_EQ(narrow_half(-middle), even | 0x8000) << bits;
    ASSERT_EQ(narrow_half(std::nextafter(middle, 0.0f)), bits);
    ASSERT_EQ(narrow_half(std::nextafter(middle, high)), bits + 1);
  }
  EXPECT_EQ(narrow_half(65519.99f), 0x7bff);
  EXPECT_EQ(narrow_half(65520.0f), 0x7c00);
  EXPECT_EQ(narrow_half(1e30f), 0x7c00);
}

}  // namespace
}  // namespace ds
