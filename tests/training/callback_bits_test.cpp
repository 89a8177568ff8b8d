#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "support/ranks.h"
#include "support/same_bits.h"

namespace ds::test::callback_bits_test {
namespace {

// Ranks communicate through callbacks of a host application, which implement all collectives and
// the groups of a split.
TEST(CallbackBits, AreTheSameOverStagesTiersAndGroups) {
  constexpr int kFewSteps = 8;
  constexpr Tier kTiers[] = {Tier::device, Tier::host, Tier::nvme};
  auto bits = [](const Point& p) {
    std::vector<std::string> out(static_cast<size_t>(p.world));
    run_ranks(
        p.world,
        [&](Communicator& comm) {
          out[static_cast<size_t>(comm.rank())] = train_rank(p, kFewSteps, comm).bits();
        },
        "caller");
    for (const std::string& other : out) EXPECT_EQ(other, out[0]) << p.name();
    return out[0];
  };
  for (int world : {2, 3}) {
    const Point plain{.world = world, .leaves = 2 * world};
    const std::string expected = train_threads(plain, kFewSteps).bits();
    for (int stage = 0; stage <= 3; ++stage) {
      Point p = plain;
      p.stage = stage;
      p.tier = kTiers[stage % 3];
      EXPECT_EQ(bits(p), expected) << p.name();
    }
  }
  Point shards{.world = 4, .leaves = 8};
  const std::string whole = train_threads(shards, kFewSteps).bits();
  shards.stage = 3;
  shards.mics = 2;
  EXPECT_EQ(bits(shards), whole);
  shards.mics = -1;
  shards.nodes = 2;
  shards.hpz = 2;
  EXPECT_EQ(bits(shards), whole);
}

}  // namespace
}  // namespace ds::test::callback_bits_test
