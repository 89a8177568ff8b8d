#include "core/base/trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <map>
#include <utility>

#include "core/base/json.h"

namespace ds {

int64_t now_ns() {
  auto since = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::nanoseconds>(since).count();
}

void Trace::span(std::string_view track, std::string_view name, int64_t begin_ns, int64_t end_ns,
                 int64_t bytes, int64_t number) {
  if (!on_) return;
  std::lock_guard lock(mutex_);
  if (spans_.size() >= capacity_) {
    ++dropped_;
    return;
  }
  spans_.push_back({std::string(track), std::string(name), begin_ns, end_ns, bytes, number});
}

std::vector<Trace::Span> Trace::take() {
  std::lock_guard lock(mutex_);
  return std::exchange(spans_, {});
}

size_t Trace::count() {
  std::lock_guard lock(mutex_);
  return spans_.size();
}

std::vector<Trace::Span> Trace::from(size_t first) {
  std::lock_guard lock(mutex_);
  return {spans_.begin() + static_cast<std::ptrdiff_t>(std::min(first, spans_.size())),
          spans_.end()};
}

namespace {

std::string quoted(const std::string& text) { return Json(text).dump(); }

// Times of trace events are in microseconds.
std::string microseconds(int64_t ns) { return fmt::format("{}.{:03}", ns / 1000, ns % 1000); }

}  // namespace

std::string trace_json(const std::vector<std::pair<int, std::vector<Trace::Span>>>& ranks) {
  // Times are relative to the earliest span of all ranks.
  int64_t start = INT64_MAX;
  for (const auto& [rank, spans] : ranks) {
    for (const auto& span : spans) start = std::min(start, span.begin_ns);
  }
  std::string out = "{\"displayTimeUnit\": \"ms\", \"traceEvents\": [";
  const char* separator = "\n";
  auto event = [&](const std::string& text) {
    out += separator + text;
    separator = ",\n";
  };
  for (const auto& [rank, spans] : ranks) {
    event(fmt::format(
        R"({{"ph": "M", "name": "process_name", "pid": {}, "args": {{"name": "rank {}"}}}})", rank,
        rank));
    // Tracks get numbers in the order of their first spans; a metadata event gives the name.
    std::map<std::string, int> tracks;
    for (const auto& span : spans) {
      auto [track, added] = tracks.emplace(span.track, static_cast<int>(tracks.size()) + 1);
      if (added) {
        event(fmt::format(
            R"({{"ph": "M", "name": "thread_name", "pid": {}, "tid": {}, "args": {{"name": {}}}}})",
            rank, track->second, quoted(span.track)));
      }
      event(fmt::format(
          R"({{"ph": "X", "name": {}, "pid": {}, "tid": {}, "ts": {}, "dur": {}, "args": {{"bytes": {}}}}})",
          quoted(span.name), rank, track->second, microseconds(span.begin_ns - start),
          microseconds(std::max<int64_t>(span.end_ns - span.begin_ns, 0)), span.bytes));
    }
  }
  return out + "\n]}\n";
}

}  // namespace ds
