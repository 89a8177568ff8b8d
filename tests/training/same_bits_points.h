// The points that the tests of equal bits compare: combinations of stage, tier, overlap, threads,
// order and number of ranks. DS_SAME_BITS=full asks for all of them.
#pragma once
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "core/base/tier.h"
#include "support/same_bits.h"

namespace ds::test::same_bits_test {

inline constexpr Tier kTiers[] = {Tier::device, Tier::host, Tier::nvme};

// Returns all combinations of stage, tier, overlap, threads and order.
inline std::vector<Point> full_product(const Point& base = {}) {
  std::vector<Point> points;
  for (int stage = 0; stage <= 3; ++stage) {
    for (Tier tier : kTiers) {
      for (int variant = 0; variant < 4; ++variant) {
        // Run 0 executes in order, and runs 1 to 8 use the chaos device with the run as its seed.
        for (int run = 0; run <= 8; ++run) {
          Point p = base;
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

// Returns points that cover each stage with each tier, and each stage and each tier with each value
// of overlap, threads and order.
inline std::vector<Point> cover() {
  std::vector<Point> points;
  int i = 0;
  for (int stage = 0; stage <= 3; ++stage) {
    for (Tier tier : kTiers) {
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

// Returns points like those of cover(), but without chaos, for ranks that are processes. They cover
// each stage with each tier, and each stage and each tier with both values of overlap and threads.
inline std::vector<Point> process_points(bool full) {
  std::vector<Point> points;
  for (int stage = 0; stage <= 3; ++stage) {
    for (Tier tier : kTiers) {
      for (int variant = 0; variant < (full ? 4 : 1); ++variant) {
        int choice = stage + static_cast<int>(tier) + variant;
        Point p;
        p.stage = stage;
        p.tier = tier;
        p.overlap = choice % 2 == 0;
        p.threads = 1 + choice / 2 % 2;
        points.push_back(p);
      }
    }
  }
  return points;
}

inline constexpr int kOddWorlds[] = {3, 5, 6, 7};

inline Point odd_base(int world) { return {.world = world, .leaves = 2 * world}; }

// Returns points that cover each stage with each tier for one number of ranks. The other axes vary
// from point to point, starting differently for each number of ranks.
inline std::vector<Point> odd_cover(int world) {
  std::vector<Point> points;
  int i = world;
  for (int stage = 0; stage <= 3; ++stage) {
    for (Tier tier : kTiers) {
      Point p = odd_base(world);
      p.stage = stage;
      p.tier = tier;
      p.overlap = i % 2 == 0;
      p.threads = 1 + i / 2 % 2;
      p.emulate = i % 4 != 1;
      if (i % 3 != 0) p.chaos = static_cast<uint64_t>(1 + i % 8);
      points.push_back(p);
      ++i;
    }
  }
  return points;
}

// Returns points for ranks that are processes. Without `full` there is one for each stage, whose
// tier depends on the number of ranks.
inline std::vector<Point> odd_process_points(int world, const std::vector<int>& stages, bool full) {
  std::vector<Point> points;
  for (int stage : stages) {
    for (int choice = 0; choice < (full ? 12 : 1); ++choice) {
      int mixed = choice + world + stage;
      Point p = odd_base(world);
      p.stage = stage;
      p.tier = kTiers[mixed % 3];
      p.overlap = mixed / 3 % 2 == 0;
      p.threads = 1 + mixed / 6 % 2;
      points.push_back(p);
    }
  }
  return points;
}

inline bool want_full() {
  const char* full = std::getenv("DS_SAME_BITS");
  return full && std::string(full) == "full";
}

}  // namespace ds::test::same_bits_test
