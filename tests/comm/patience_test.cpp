#include "comm/patience.h"

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <vector>

// Tests when a rank gives up on a peer, with a clock that the test controls.
namespace ds {
namespace {

constexpr int64_t kMs = 1'000'000;

class Shown final : public World {
 public:
  explicit Shown(size_t ranks) : signs(ranks) {}
  Sign sign(int rank) const override { return signs[static_cast<size_t>(rank)]; }
  std::string doing(int rank) const override { return fmt::format("barrier 'w{}'", rank); }
  std::vector<Sign> signs;
};

class Looking : public testing::Test {
 protected:
  // Checks rank 1 every 20 ms, calling `each` before each check. Returns the line that ends the
  // wait, or "" after one second.
  template <typename Each>
  std::string look_for_a_second(Each each) {
    for (int i = 0; i < 50; ++i) {
      each();
      now_ += 20 * kMs;
      std::string line = patience_.look(world_, 1, now_, 100);
      if (!line.empty()) return line;
    }
    return "";
  }
  Sign& of(size_t rank) { return world_.signs[rank]; }

  Shown world_{8};
  Patience patience_;
  int64_t now_ = 7 * kMs;
};

TEST_F(Looking, ARankWithoutHeartbeatsIsGivenUp) {
  EXPECT_EQ(look_for_a_second([] {}), "rank 1 has made no progress for 100 ms");
}

TEST_F(Looking, AWorkingRankIsWaitedFor) {
  EXPECT_EQ(look_for_a_second([&] { ++of(1).work; }), "");
}

TEST_F(Looking, ARankThatWaitsForAWorkingOneIsWaitedFor) {
  of(1).waits_for = 2;
  of(2).waits_for = 3;
  EXPECT_EQ(look_for_a_second([&] { ++of(1).pulse, ++of(3).work; }), "");
}

TEST_F(Looking, TheEndOfAChainIsNamed) {
  of(1).waits_for = 2;
  EXPECT_EQ(look_for_a_second([&] { ++of(1).pulse; }),
            "rank 1 waits in barrier 'w1' for rank 2, which has made no progress for 100 ms");
}

TEST_F(Looking, RanksThatWaitForEachOtherAreNamed) {
  of(0).waits_for = 1;
  of(1).waits_for = 2;
  of(2).waits_for = 0;
  EXPECT_EQ(look_for_a_second([&] { ++of(0).pulse, ++of(1).pulse, ++of(2).pulse; }),
            "ranks wait for each other: rank 1 waits in barrier 'w1' for rank 2, rank 2 waits in "
            "barrier 'w2' for rank 0, rank 0 waits in barrier 'w0' for rank 1, all for 100 ms");
}

// A stopped rank still shows the wait that it was in.
TEST_F(Looking, AStoppedRankIsGivenUpEvenIfOthersWork) {
  of(1).waits_for = 2;
  EXPECT_EQ(look_for_a_second([&] { ++of(2).work; }), "rank 1 has made no progress for 100 ms");
}

TEST_F(Looking, TimeWhileThisRankWasStoppedCountsAsOneCheck) {
  EXPECT_EQ(patience_.look(world_, 1, now_, 500), "");
  for (int i = 0; i < 2; ++i)
    EXPECT_EQ(patience_.look(world_, 1, now_ += 3'600'000 * kMs, 500), "");
  EXPECT_NE(patience_.look(world_, 1, now_ + 3'600'000 * kMs, 500), "");
}

}  // namespace
}  // namespace ds
