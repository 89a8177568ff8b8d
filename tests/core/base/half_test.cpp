#include "core/base/half.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "core/base/error.h"

namespace ds {
namespace {

// Returns the value that the format defines for these bits.
double half_value(uint16_t bits) {
  int exponent = bits >> 10 & 31, fraction = bits & 1023;
  double magnitude =
      exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, exponent - 25);
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
    // The middle is exact in f32.
    float middle = (low + high) / 2;
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

TEST(Half, SpansOfEveryFloatTypeNarrowAndWiden) {
  const std::vector<float> values{1.0f, -0.5f, 3.14159274f, 1e-3f, 70000.0f};
  for (DType dtype : {DS_DTYPE_F32, DS_DTYPE_BF16, DS_DTYPE_F16}) {
    std::vector<std::byte> bytes(4 * values.size() + 1);
    std::byte* odd = bytes.data() + 1;
    std::vector<float> back(values.size());
    narrow(dtype, values.data(), static_cast<int64_t>(values.size()), odd);
    widen(dtype, odd, static_cast<int64_t>(values.size()), back.data());
    for (size_t i = 0; i < values.size(); ++i) {
      float expected = dtype == DS_DTYPE_F32    ? values[i]
                       : dtype == DS_DTYPE_BF16 ? static_cast<float>(bf16(values[i]))
                                                : widen_half(narrow_half(values[i]));
      EXPECT_EQ(back[i], expected) << dtype_name(dtype) << " " << i;
    }
  }
  std::byte none{};
  float value = 0;
  EXPECT_THROW(widen(DS_DTYPE_I32, &none, 0, &value), Error);
  EXPECT_THROW(narrow(DS_DTYPE_I32, &value, 0, &none), Error);
}

}  // namespace
}  // namespace ds
