#pragma once
#include <string>
#include <vector>

#include "monitor/record.h"

namespace ds {

// What one queue of one rank did. Spans of a queue that overlap each other count once.
struct QueueTime {
  int rank = 0;
  std::string queue;
  double busy = 0;    // seconds
  double hidden = 0;  // of busy: while the rank's "comp" queue was busy, too ("comp": while any other was)
  int64_t bytes = 0;
};
// In order of rank, "comp" first, then by name.
std::vector<QueueTime> queue_times(const RankSpans& ranks);

// SVG: one lane per queue of the first `max_ranks` ranks over the last part of the run that holds at most
// 20000 spans. "" without spans.
std::string timeline(const RankSpans& ranks, int width, size_t max_ranks = 4);

// Colour class of a queue in every chart.
int queue_colour(const std::string& queue);

}  // namespace ds
