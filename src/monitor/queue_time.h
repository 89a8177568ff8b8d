#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "monitor/run_record.h"

namespace ds {

// What one queue of one rank did in the recorded steps. Spans of a queue that overlap each other
// count once; what lies between steps (an evaluation, say) does not count.
struct QueueTime {
  int rank = 0;
  std::string queue;
  double busy = 0;  // seconds
  double hidden =
      0;  // of busy: while the rank's "comp" queue was busy, too ("comp": while any other was)
  double steps = 0;   // seconds of all recorded steps of the rank
  int64_t bytes = 0;  // of all spans
};
// In order of rank, "comp" first, then by name. Ranks without a recorded step (kStepTrack) have
// none.
std::vector<QueueTime> queue_times(const RankSpans& ranks);

// "step 5 to step 10": the recorded steps of the first rank; "" without any.
std::string recorded_steps(const RankSpans& ranks);

// One step as lanes of blocks, one per queue, for each of the first max_ranks ranks.
struct TimelineChart {
  std::string step;    // "step 10": the last that was recorded
  double seconds = 0;  // of the rank whose step took longest: what a lane's width means
  std::string html;    // "" without a recorded step
};
TimelineChart timeline(const RankSpans& ranks, size_t max_ranks);

// Colour class of a queue in every chart, and its name for people: "comp" is "compute".
int queue_colour(const std::string& queue);
std::string queue_name_text(const std::string& queue);

}  // namespace ds
