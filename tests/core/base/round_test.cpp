#include "core/base/round.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>

namespace ds::test {
namespace {

TEST(Round, RoundsUpToPiecesAndMultiples) {
  for (int64_t unit : {1, 2, 3, 256}) {
    for (int64_t x = 0; x < 600; ++x) {
      int64_t pieces = ceil_div(x, unit);
      EXPECT_TRUE(pieces * unit >= x && (pieces - 1) * unit < x) << x << " in " << unit;
      EXPECT_EQ(round_up(x, unit), pieces * unit);
    }
  }
  EXPECT_EQ(round_up(size_t{4097}, 4096), 8192u);
}

}  // namespace
}  // namespace ds::test
