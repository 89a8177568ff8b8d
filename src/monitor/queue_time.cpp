// Computes busy and overlapped time with sets of intervals: unite() makes the spans of a queue
// disjoint, common() intersects two such sets, and seconds() measures one. Each takes linear time
// after one sort.
#include "monitor/queue_time.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <map>

#include "core/base/trace.h"
#include "monitor/bars.h"
#include "monitor/readable_text.h"

namespace ds {
namespace {

using Interval = std::pair<int64_t, int64_t>;
// A set of times. unite() makes its intervals ascending and disjoint.
using Intervals = std::vector<Interval>;

Intervals unite(Intervals all) {
  std::ranges::sort(all);
  Intervals out;
  for (const Interval& next : all) {
    if (!out.empty() && next.first <= out.back().second) {
      out.back().second = std::max(out.back().second, next.second);
    } else if (next.second > next.first) {
      out.push_back(next);
    }
  }
  return out;
}

double seconds(const Intervals& intervals) {
  int64_t sum = 0;
  for (const auto& [begin, end] : intervals) sum += end - begin;
  return static_cast<double>(sum) * 1e-9;
}

// Returns the intersection of two sets, which must be ascending and disjoint.
Intervals common(const Intervals& a, const Intervals& b) {
  Intervals out;
  for (size_t i = 0, j = 0; i < a.size() && j < b.size();) {
    Interval both{std::max(a[i].first, b[j].first), std::min(a[i].second, b[j].second)};
    if (both.second > both.first) out.push_back(both);
    a[i].second < b[j].second ? ++i : ++j;
  }
  return out;
}

// The order of queues: by name, with "comp" first.
struct QueueOrder {
  bool operator()(const std::string& a, const std::string& b) const {
    return std::pair(a != "comp", a) < std::pair(b != "comp", b);
  }
};
template <typename T>
using PerQueue = std::map<std::string, T, QueueOrder>;

// Returns the recorded steps of a rank in ascending order of time.
std::vector<const Trace::Span*> steps_of(const std::vector<Trace::Span>& spans) {
  std::vector<const Trace::Span*> steps;
  for (const Trace::Span& span : spans) {
    if (span.track == kStepTrack && span.end_ns > span.begin_ns) steps.push_back(&span);
  }
  std::ranges::sort(steps, [](auto* a, auto* b) { return a->begin_ns < b->begin_ns; });
  return steps;
}

// Width of a lane in units of its SVG. The page shows it with about as many pixels, or fewer.
constexpr double kWidth = 1000;

// Draws the blocks of one lane within `window`. Blocks less than a third of a unit apart are
// merged, unless the merged block is already wide.
std::string blocks(std::vector<const Trace::Span*> spans, const Interval& window, double scale,
                   int colour) {
  std::ranges::sort(spans, [](auto* a, auto* b) { return a->begin_ns < b->begin_ns; });
  std::string svg;
  for (size_t i = 0; i < spans.size();) {
    int64_t begin = std::max(spans[i]->begin_ns, window.first), end = spans[i]->end_ns;
    std::string title = spans[i]->name;
    size_t next = i + 1;
    while (next < spans.size() && static_cast<double>(spans[next]->begin_ns - end) * scale < 0.34 &&
           static_cast<double>(end - begin) * scale < 4) {
      end = std::max(end, spans[next++]->end_ns);
    }
    end = std::min(end, window.second);
    if (next - i > 1) title = fmt::format("{} operations, first {}", next - i, title);
    svg += fmt::format(
        R"(<rect class="c{}" x="{:.2f}" width="{:.2f}" height="1"><title>{}, {:.3f} ms</title></rect>)",
        colour, static_cast<double>(begin - window.first) * scale,
        std::max(static_cast<double>(end - begin) * scale, 0.4), html_text(title),
        static_cast<double>(end - begin) * 1e-6);
    i = next;
  }
  return svg;
}

std::string lane(int rank, const std::string& queue, const std::vector<const Trace::Span*>& spans,
                 const Interval& window, double scale) {
  Intervals all;
  for (const Trace::Span* span : spans) all.emplace_back(span->begin_ns, span->end_ns);
  std::string name = queue_name_text(queue);
  std::string busy = time_text(seconds(common(unite(std::move(all)), {window})));
  std::string svg = fmt::format(
      R"(<svg class="track" viewBox="0 0 {} 1" preserveAspectRatio="none" role="img" aria-label="rank {} {}, busy {}">)",
      kWidth, rank, html_text(name), busy);
  return bar_row(name, svg + blocks(spans, window, scale, queue_colour(queue)) + "</svg>", busy);
}

// Returns the lanes of one rank: one for every queue with a span, in this step or at another time.
std::string lanes(int rank, const std::vector<Trace::Span>& spans, const Interval& window,
                  double scale) {
  PerQueue<std::vector<const Trace::Span*>> queues;
  for (const Trace::Span& span : spans) {
    if (span.track == kStepTrack) continue;
    // A queue that is idle in this step also gets a lane.
    auto& queue = queues[span.track];
    if (span.end_ns > window.first && span.begin_ns < window.second) queue.push_back(&span);
  }
  std::string html;
  for (const auto& [queue, inside] : queues) html += lane(rank, queue, inside, window, scale);
  return fmt::format("<h3>rank {}</h3>", rank) + list_of_rows(html, 8);
}

}  // namespace

int queue_colour(const std::string& queue) {
  static const auto& colours = *new std::map<std::string, int>{
      {"comp", 1}, {"comm", 2}, {"copy", 3}, {"host", 4}, {"read", 5}, {"write", 6}};
  auto found = colours.find(queue);
  return found == colours.end() ? 5 : found->second;
}

std::string queue_name_text(const std::string& queue) {
  static const auto& names = *new std::map<std::string, std::string>{
      {"comp", "compute"}, {"comm", "communication"}, {"copy", "copies"},
      {"host", "host"},    {"read", "file reads"},    {"write", "file writes"}};
  auto found = names.find(queue);
  return found == names.end() ? queue : found->second;
}

std::string recorded_steps(const RankSpans& ranks) {
  if (ranks.empty()) return "";
  auto steps = steps_of(ranks[0].second);
  if (steps.empty()) return "";
  return steps.size() == 1 ? steps[0]->name : steps.front()->name + " to " + steps.back()->name;
}

// The overlap of "comp" is measured with the union of all other queues, and the overlap of each
// other queue with "comp".
std::vector<QueueTime> queue_times(const RankSpans& ranks) {
  std::vector<QueueTime> times;
  for (const auto& [rank, spans] : ranks) {
    Intervals steps;
    for (const Trace::Span* step : steps_of(spans))
      steps.emplace_back(step->begin_ns, step->end_ns);
    steps = unite(std::move(steps));
    if (steps.empty()) continue;
    PerQueue<Intervals> busy;
    PerQueue<int64_t> bytes;
    for (const auto& span : spans) {
      if (span.track == kStepTrack) continue;
      busy[span.track].emplace_back(span.begin_ns, span.end_ns);
      bytes[span.track] += span.bytes;
    }
    Intervals compute, others;
    for (auto& [queue, intervals] : busy) {
      intervals = common(unite(std::move(intervals)), steps);
      Intervals& group = queue == "comp" ? compute : others;
      group.insert(group.end(), intervals.begin(), intervals.end());
    }
    others = unite(std::move(others));
    for (const auto& [queue, intervals] : busy) {
      times.push_back({rank, queue, seconds(intervals),
                       seconds(common(intervals, queue == "comp" ? others : compute)),
                       seconds(steps), bytes[queue]});
    }
  }
  return times;
}

TimelineChart timeline(const RankSpans& ranks, size_t max_ranks) {
  TimelineChart out;
  // For each shown rank, its index in `ranks` and its last step.
  std::vector<std::pair<size_t, Interval>> windows;
  for (size_t r = 0; r < ranks.size() && windows.size() < max_ranks; ++r) {
    auto steps = steps_of(ranks[r].second);
    if (steps.empty()) continue;
    windows.push_back({r, {steps.back()->begin_ns, steps.back()->end_ns}});
    out.step = steps.back()->name;
    out.seconds = std::max(out.seconds, seconds({windows.back().second}));
  }
  if (windows.empty()) return out;
  // All lanes have the scale of the longest step. The clocks of ranks may differ, so each lane
  // begins at the rank's own step.
  double scale = kWidth / (out.seconds * 1e9);
  for (const auto& [r, window] : windows)
    out.html += lanes(ranks[r].first, ranks[r].second, window, scale);
  return out;
}

}  // namespace ds
