#include "core/program/levels.h"

#include <gtest/gtest.h>

#include <map>

#include "support/errors.h"

namespace ds::test {
namespace {

TEST(RankLevels, OneLevelIsAllRanks) {
  RankLevels flat({6});
  EXPECT_EQ(flat.depth(), 1);
  EXPECT_EQ(flat.ways(1), 6);
  EXPECT_EQ(flat.group(0), (RankGroup{6, 1}));
  for (int r = 0; r < 6; ++r) EXPECT_EQ(flat.part_of(r, 1), r);
}

TEST(RankLevels, OneRankIsOneLevel) {
  EXPECT_EQ(RankLevels({1}).depth(), 1);
  EXPECT_EQ(RankLevels({1, 4, 1}).depth(), 1);
}

TEST(RankLevels, BlocksBecomeLevels) {
  RankLevels levels = RankLevels::of_blocks({2, 8, 8, 24});
  ASSERT_EQ(levels.depth(), 3);
  EXPECT_EQ(levels.group(0).name(), "2x1");
  EXPECT_EQ(levels.group(1).name(), "4x2");
  EXPECT_EQ(levels.group(2).name(), "3x8");
  EXPECT_EQ(levels.within(1), 0);
  EXPECT_EQ(levels.within(2), 1);
  EXPECT_EQ(levels.within(7), 1);
  EXPECT_EQ(levels.within(8), 2);
  EXPECT_EQ(levels.within(24), 3);
  std::string refused = message_of(
      [] {
        RankLevels::of_blocks({4, 6});
      },
      DS_ERROR_INVALID_ARGUMENT);
  expect_names(refused, {"blocks of 6", "blocks of 4"});
}

// Every part of a cut is held by (ranks / ways) ranks, and the parts of each block of a level are
// contiguous.
TEST(RankLevels, PartsOfABlockAreContiguous) {
  RankLevels levels({2, 4, 3});
  for (int cut = 0; cut <= 3; ++cut) {
    std::map<int, int> held;
    for (int r = 0; r < 24; ++r) ++held[levels.part_of(r, cut)];
    ASSERT_EQ(static_cast<int>(held.size()), levels.ways(cut));
    for (auto [part, ranks] : held) {
      EXPECT_EQ(ranks, 24 / levels.ways(cut));
      EXPECT_EQ(levels.part_of(levels.holder(part, cut), cut), part);
    }
  }
  // A gather over this level gives all members of a group the same part. Before it, member i holds
  // the i-th piece of that part.
  for (int level = 0; level < 3; ++level) {
    RankGroup group = levels.group(level);
    for (int r = 0; r < 24; ++r) {
      int first = r - r / group.stride % group.size * group.stride;
      for (int i = 0; i < group.size; ++i) {
        int member = first + i * group.stride;
        EXPECT_EQ(levels.part_of(member, level + 1), levels.part_of(r, level) * group.size + i);
      }
    }
  }
}

}  // namespace
}  // namespace ds::test
