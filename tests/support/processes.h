#pragma once
#include <string>
#include <vector>

#include "support/same_bits.h"

namespace ds::test {

// What a rank process says: its Outcome's bits(), or the message of its error.
struct RankReport {
  bool ok = false;
  std::string text;
  double seconds = 0;  // from the start of the first rank to this report
};

// Trains a point with each rank in a forked process of its own, over shared memory or what the url
// names. kill_rank >= 0: that rank kills itself before its instruction number kill_at. Call it
// while this process has one thread.
std::vector<RankReport> train_processes(const Point& point, int steps, int kill_rank = -1,
                                        size_t kill_at = 1500);
std::vector<RankReport> train_processes(const Point& point, int steps, const std::string& url,
                                        int kill_rank = -1, size_t kill_at = 1500);

}  // namespace ds::test
