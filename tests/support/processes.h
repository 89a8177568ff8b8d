#pragma once
#include <string>
#include <vector>

#include "support/same_bits.h"

namespace ds::test {

// The report of a rank's process: its Outcome's bits(), or the message of its error.
struct RankReport {
  bool ok = false;
  std::string text;
  // Seconds from the start of the first rank until this report was read. Reports are read in the
  // order of ranks.
  double seconds = 0;
};

// Trains a point with each rank in a forked process, over shared memory or over the given url. If
// kill_rank >= 0, that rank kills itself before its kill_at-th instruction, counted over all steps.
// The calling process must have only one thread.
std::vector<RankReport> train_processes(const Point& point, int steps, int kill_rank = -1,
                                        size_t kill_at = 1500);
std::vector<RankReport> train_processes(const Point& point, int steps, const std::string& url,
                                        int kill_rank = -1, size_t kill_at = 1500);

}  // namespace ds::test
