#pragma once
#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

namespace ds {

// Nanoseconds of the monotonic clock.
int64_t now_ns();

// Spans of one rank's queues, written as Chrome trace-event JSON (opens in Perfetto). Thread-safe;
// bounded: beyond `capacity` spans later ones are dropped and counted.
class Trace {
 public:
  explicit Trace(int rank, size_t capacity = 200000) : rank_(rank), capacity_(capacity) {}
  void span(std::string_view track, std::string_view name, int64_t begin_ns, int64_t end_ns,
            int64_t bytes = 0, int64_t number = -1);
  struct Span {
    std::string track, name;
    int64_t begin_ns, end_ns, bytes;
    int64_t number = -1;  // of the instruction in its program, rounds counted; -1: of none
  };
  void turn(bool on) { on_ = on; }  // off: spans are not kept
  bool on() const { return on_; }
  std::vector<Span> take();              // moves the spans out
  size_t count();                        // of spans now
  std::vector<Span> from(size_t first);  // a copy of those from number `first` on
  int rank() const { return rank_; }
  int64_t dropped() const { return dropped_; }

 private:
  int rank_;
  size_t capacity_;
  int64_t dropped_ = 0;
  std::atomic<bool> on_{true};
  std::mutex mutex_;
  std::vector<Span> spans_;
};

// The complete document for spans of several ranks (pid = rank, tid = track).
std::string trace_json(const std::vector<std::pair<int, std::vector<Trace::Span>>>& ranks);

}  // namespace ds
