#include "support/same_bits.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <set>

namespace ds::test {
namespace {

constexpr int kSteps = 20;

const std::string& reference_hash() {
  static const std::string hash = [] {
    Point p;
    p.emulate = false;
    return train_threads(p, kSteps).hash;
  }();
  return hash;
}

// Every value of every axis, each stage with each tier.
std::vector<Point> full_product() {
  std::vector<Point> points;
  for (int stage = 0; stage <= 3; ++stage) {
    for (Tier tier : {Tier::device, Tier::host, Tier::nvme}) {
      for (int variant = 0; variant < 4; ++variant) {
        for (int run = 0; run <= 8; ++run) {  // run 0: in order; 1..8: chaos seeds
          Point p;
          p.stage = stage;
          p.tier = tier;
          p.overlap = variant % 2 == 0;
          p.threads = variant < 2 ? 1 : 2;
          p.emulate = true;
          if (run > 0) p.chaos = static_cast<uint64_t>(run);
          points.push_back(p);
        }
      }
    }
  }
  return points;
}

// Each stage x tier, and every pair of (stage or tier) with (overlap, threads, order) over the cover.
std::vector<Point> cover() {
  std::vector<Point> points;
  int i = 0;
  for (int stage = 0; stage <= 3; ++stage) {
    for (Tier tier : {Tier::device, Tier::host, Tier::nvme}) {
      for (int variant = 0; variant < 3; ++variant, ++i) {
        Point p;
        p.stage = stage;
        p.tier = tier;
        p.overlap = (i + variant) % 2 == 0;
        p.threads = 1 + (i / 2 + variant) % 2;
        p.emulate = variant != 1;
        if (variant > 0) p.chaos = static_cast<uint64_t>(1 + i % 8);
        points.push_back(p);
      }
    }
  }
  return points;
}

TEST(SameBits, StageTierOverlapThreadsChaos) {
  const char* full = std::getenv("DS_SAME_BITS");
  std::vector<Point> points = full && std::string(full) == "full" ? full_product() : cover();
  for (const Point& p : points) EXPECT_EQ(train_threads(p, kSteps).hash, reference_hash()) << p.name();
  std::printf("same bits: %zu points\n", points.size());
}

TEST(SameBits, ReproducibleOverWorldSizes) {
  for (DType compute : {DS_DTYPE_BF16, DS_DTYPE_F32}) {
    std::set<std::string> hashes;
    for (int i = 0; i < 12; ++i) {
      int world = 1 << (i / 4), stage = i % 4;
      Point p;
      p.compute = compute;
      p.reproducible = true;
      p.world = world;
      p.stage = stage;
      p.tier = stage == 3 ? Tier::nvme : Tier::device;
      hashes.insert(train_threads(p, kSteps).hash);
    }
    EXPECT_EQ(hashes.size(), 1u) << dtype_name(compute);
  }
}

// Without `reproducible` the order of additions depends on the number of ranks.
TEST(SameBits, MicroOrderDependsOnWorldSize) {
  Point one, four;
  one.world = 1;
  four.world = 4;
  one.leaves = four.leaves = 8;
  one.compute = four.compute = DS_DTYPE_F32;  // sums of eight bf16 values are exact in f32
  EXPECT_NE(train_threads(one, kSteps).hash, train_threads(four, kSteps).hash);
}

TEST(SameBits, EveryFeatureIsOn) {
  Point seed, dropout, clipping, leaves;
  seed.seed = 8;
  dropout.dropout = 0;
  clipping.clipping = 0;
  leaves.leaves = 2;
  std::set<std::string> hashes{reference_hash()};
  for (const Point& p : {seed, dropout, clipping, leaves}) hashes.insert(train_threads(p, kSteps).hash);
  EXPECT_EQ(hashes.size(), 5u);
}

TEST(SameBits, LossFalls) {
  Point p;
  Outcome out = train_threads(p, kSteps);
  EXPECT_LT(out.losses.back(), out.losses.front() - 0.1);
  for (double norm : out.grad_norms) EXPECT_GT(norm, p.clipping) << "clipping is not exercised";
}

}  // namespace
}  // namespace ds::test
