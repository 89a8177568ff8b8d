#pragma once
#include <map>
#include <string>
#include <vector>

#include "monitor/record.h"

namespace ds {

// One self-contained page: pictures are inline SVG, no script, nothing is loaded.
std::string run_page(const RunSummary& summary);

// Busy seconds of each track (queue), and seconds in which at least one other track was busy too.
struct QueueTime {
  double busy = 0;
  double overlapped = 0;
};
std::map<std::string, QueueTime> queue_times(const std::vector<Trace::Span>& spans);

}  // namespace ds
