#include "monitor/queue_time.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "monitor/text.h"

namespace ds {
namespace {

using Interval = std::pair<int64_t, int64_t>;
using Intervals = std::vector<Interval>;  // ascending, disjoint

Intervals unite(Intervals all) {
  std::sort(all.begin(), all.end());
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

double common_seconds(const Intervals& a, const Intervals& b) {
  int64_t sum = 0;
  for (size_t i = 0, j = 0; i < a.size() && j < b.size();) {
    sum += std::max<int64_t>(0, std::min(a[i].second, b[j].second) - std::max(a[i].first, b[j].first));
    a[i].second < b[j].second ? ++i : ++j;
  }
  return static_cast<double>(sum) * 1e-9;
}

// "comp" sorts first.
struct QueueOrder {
  bool operator()(const std::string& a, const std::string& b) const {
    return std::pair(a != "comp", a) < std::pair(b != "comp", b);
  }
};
template <typename T>
using PerQueue = std::map<std::string, T, QueueOrder>;

// Begin of the window that timeline() shows, and the end of all spans.
Interval last_part(const RankSpans& ranks, size_t max_ranks) {
  constexpr size_t most = 20000;
  std::vector<int64_t> ends;
  for (size_t r = 0; r < std::min(ranks.size(), max_ranks); ++r) {
    for (const auto& span : ranks[r].second) ends.push_back(span.end_ns);
  }
  if (ends.empty()) return {0, 0};
  std::sort(ends.begin(), ends.end());
  int64_t first = ends.front();
  for (size_t r = 0; r < std::min(ranks.size(), max_ranks); ++r) {
    for (const auto& span : ranks[r].second) first = std::min(first, span.begin_ns);
  }
  return {ends.size() > most ? ends[ends.size() - most] : first, ends.back()};
}

// Rectangles of one lane; neighbours closer than a third of a pixel become one.
std::string lane(std::vector<const Trace::Span*> spans, const std::string& queue, const Interval& window,
                 double left, double room, int y) {
  std::sort(spans.begin(), spans.end(), [](auto* a, auto* b) { return a->begin_ns < b->begin_ns; });
  double scale = room / static_cast<double>(window.second - window.first);
  std::string svg;
  for (size_t i = 0; i < spans.size();) {
    int64_t begin = std::max(spans[i]->begin_ns, window.first), end = spans[i]->end_ns;
    std::string title = spans[i]->name;
    size_t next = i + 1;
    while (next < spans.size() && static_cast<double>(spans[next]->begin_ns - end) * scale < 0.34 &&
           static_cast<double>(end - begin) * scale < 4) {
      end = std::max(end, spans[next++]->end_ns);
    }
    if (next - i > 1) title = fmt::format("{} operations, first {}", next - i, title);
    svg += fmt::format(
        R"(<rect class="c{}" x="{:.2f}" y="{}" width="{:.2f}" height="13"><title>{}, {:.3f} ms</title></rect>)",
        queue_colour(queue), left + static_cast<double>(begin - window.first) * scale, y,
        std::max(static_cast<double>(end - begin) * scale, 0.4), html_text(title),
        static_cast<double>(end - begin) * 1e-6);
    i = next;
  }
  return svg;
}

}  // namespace

int queue_colour(const std::string& queue) {
  static const std::map<std::string, int> colours{{"comp", 1}, {"comm", 2}, {"copy", 3},
                                                  {"host", 4}, {"read", 5}, {"write", 6}};
  auto found = colours.find(queue);
  return found == colours.end() ? 5 : found->second;
}

std::vector<QueueTime> queue_times(const RankSpans& ranks) {
  std::vector<QueueTime> times;
  for (const auto& [rank, spans] : ranks) {
    PerQueue<Intervals> raw;
    PerQueue<int64_t> bytes;
    for (const auto& span : spans) {
      raw[span.track].emplace_back(span.begin_ns, span.end_ns);
      bytes[span.track] += span.bytes;
    }
    Intervals others;
    for (const auto& [queue, intervals] : raw) {
      if (queue != "comp") others.insert(others.end(), intervals.begin(), intervals.end());
    }
    others = unite(std::move(others));
    Intervals compute = unite(raw.contains("comp") ? raw["comp"] : Intervals());
    for (const auto& [queue, intervals] : raw) {
      Intervals busy = unite(intervals);
      times.push_back({rank, queue, seconds(busy), common_seconds(busy, queue == "comp" ? others : compute),
                       bytes[queue]});
    }
  }
  return times;
}

std::string timeline(const RankSpans& ranks, int width, size_t max_ranks) {
  Interval window = last_part(ranks, max_ranks);
  if (window.second <= window.first) return "";
  constexpr int row = 17, left = 108;
  int y = 4;
  std::string svg;
  for (size_t r = 0; r < std::min(ranks.size(), max_ranks); ++r) {
    PerQueue<std::vector<const Trace::Span*>> lanes;
    for (const auto& span : ranks[r].second) {
      if (span.end_ns > window.first) lanes[span.track].push_back(&span);
    }
    for (const auto& [queue, spans] : lanes) {
      svg += fmt::format(R"(<text class="tick" text-anchor="end" x="{}" y="{}">rank {} {}</text>)", left - 6,
                         y + 11, ranks[r].first, html_text(queue));
      svg += fmt::format(R"(<rect class="track" x="{}" y="{}" width="{}" height="13"/>)", left, y,
                         width - left - 8);
      svg += lane(spans, queue, window, left, width - left - 8, y);
      y += row;
    }
    y += 6;
  }
  double milliseconds = static_cast<double>(window.second - window.first) * 1e-6;
  svg += fmt::format(R"(<text class="tick" x="{}" y="{}">0</text>)", left, y + 8);
  svg += fmt::format(R"(<text class="tick" text-anchor="end" x="{}" y="{}">{:.4g} ms</text>)", width - 8,
                     y + 8, milliseconds);
  return fmt::format(R"(<svg class="timeline" viewBox="0 0 {} {}" role="img">)", width, y + 14) + svg +
         "</svg>";
}

}  // namespace ds
