#pragma once
#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

namespace ds {

// Returns the monotonic clock in nanoseconds.
int64_t now_ns();

// Spans of the queues of one rank, written as Chrome trace-event JSON, which Perfetto opens.
// Thread-safe. At most `capacity` spans are kept; later ones are dropped and counted.
class Trace {
 public:
  explicit Trace(int rank, size_t capacity = 200000) : rank_(rank), capacity_(capacity) {}
  void span(std::string_view track, std::string_view name, int64_t begin_ns, int64_t end_ns,
            int64_t bytes = 0, int64_t number = -1);
  struct Span {
    std::string track, name;
    int64_t begin_ns, end_ns, bytes;
    // The issue number of the instruction (exec/issue_number.h), or -1 if the span is not an
    // instruction.
    int64_t number = -1;
  };
  // Turns recording on or off; while it is off, spans are not kept.
  void turn(bool on) { on_ = on; }
  bool on() const { return on_; }
  // Returns all spans and removes them.
  std::vector<Span> take();
  // Returns the number of spans kept now.
  size_t count();
  // Returns a copy of the spans from index `first` on.
  std::vector<Span> from(size_t first);
  int rank() const { return rank_; }
  int64_t dropped() const { return dropped_; }

 private:
  int rank_;
  size_t capacity_;
  std::atomic<int64_t> dropped_{0};
  std::atomic<bool> on_{true};
  std::mutex mutex_;
  std::vector<Span> spans_;
};

// Returns the complete document for the spans of several ranks, in which pid is the rank and tid
// the track.
std::string trace_json(const std::vector<std::pair<int, std::vector<Trace::Span>>>& ranks);

}  // namespace ds
