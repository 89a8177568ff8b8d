#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "monitor/run_record.h"

namespace ds {

// Activity of one queue of one rank in the recorded steps. Time that several spans of a queue cover
// counts once; time between steps (an evaluation, for example) does not count.
struct QueueTime {
  int rank = 0;
  std::string queue;
  // Seconds of the recorded steps in which the queue was busy.
  double busy = 0;
  // The part of `busy` in which the rank's "comp" queue was also busy or, for "comp" itself, in
  // which any other queue was also busy.
  double hidden = 0;
  // Total duration of the rank's recorded steps, in seconds.
  double steps = 0;
  // Bytes that all spans of the queue have moved.
  int64_t bytes = 0;
};
// Returns the activity of all queues, in the order of ranks; for each rank "comp" comes first, then
// the others by name. Ranks without a recorded step (kStepTrack) are left out.
std::vector<QueueTime> queue_times(const RankSpans& ranks);

// Returns the names of the first rank's first and last recorded steps, as "step 5 to step 10", or
// "" if there are none.
std::string recorded_steps(const RankSpans& ranks);

// The last recorded step as HTML: lanes of blocks, one lane for each queue of each shown rank.
struct TimelineChart {
  // Name of the last recorded step, such as "step 10".
  std::string step;
  // Duration of the step on the rank where it took longest, which is the time that a lane's full
  // width represents.
  double seconds = 0;
  // Empty if no step was recorded.
  std::string html;
};
// Returns the timeline of the first max_ranks ranks that have a recorded step.
TimelineChart timeline(const RankSpans& ranks, size_t max_ranks);

// These return the color class of a queue, which is the same in every chart, and the queue's name
// for readers: "comp" is "compute".
int queue_colour(const std::string& queue);
std::string queue_name_text(const std::string& queue);

}  // namespace ds
