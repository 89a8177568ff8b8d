#include "core/base/suggest.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace ds::test {
namespace {

TEST(Suggest, FindsTheNearestOrNothing) {
  const std::vector<std::string> names{"optimizer", "scheduler", "zero_optimization"};
  EXPECT_EQ(suggest("optimiser", names), "optimizer");
  EXPECT_EQ(suggest("sheduler", names), "scheduler");
  EXPECT_EQ(suggest("fp16", names), "");
}

TEST(Suggest, CountsSwappedNeighboursOnce) {
  EXPECT_EQ(edit_distance("", "abc"), 3u);
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3u);
  EXPECT_EQ(edit_distance("gelu", "gleu"), 1u);
  EXPECT_EQ(edit_distance("abcd", "badc"), 2u);
  EXPECT_EQ(did_you_mean("gleu", std::vector<std::string>{"relu", "gelu"}),
            "; did you mean 'gelu'?");
}

TEST(Suggest, VeryLongWordsAreComparedQuickly) {
  EXPECT_EQ(
      edit_distance_below(std::string(size_t{1} << 26, 'x'), std::string(size_t{1} << 20, 'y'), 9),
      9u);
}

}  // namespace
}  // namespace ds::test
