#include "launch/failure_report.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <system_error>

namespace ds {
namespace {

// A record ends with a newline, because srun forwards only whole lines while a rank is running.
constexpr char kEnd = '\n';
// The largest record, in bytes.
constexpr size_t kMostBytes = 4096;

// Returns the length of the longest suffix of `text` that is a prefix of `head`.
size_t overlap(std::string_view text, std::string_view head) {
  for (size_t size = std::min(text.size(), head.size()); size > 0; --size) {
    if (text.substr(text.size() - size) == head.substr(0, size)) return size;
  }
  return 0;
}

}  // namespace

// A record consists of \x1e, the token, the numbers of the RankFailure, its text and a newline.
std::string report_record(std::string_view token, const RankFailure& failure) {
  std::string text = failure.text.substr(0, kMostBytes / 2);
  std::ranges::replace(text, kEnd, ' ');
  return fmt::format("\x1e{} {} {} {} {} {}{}", token, failure.rank, failure.code,
                     failure.by_signal ? 1 : 0, failure.because_of, text, kEnd);
}

// A record may arrive in pieces and between other output. Bytes before a record are returned; a
// possible beginning of a record is kept until more bytes arrive, up to kMostBytes.
std::string ReportReader::feed(std::string_view bytes) {
  waiting_ += bytes;
  std::string out;
  for (;;) {
    size_t begin = waiting_.find(head_);
    if (begin == std::string::npos) {
      size_t keep = overlap(waiting_, head_);
      out += waiting_.substr(0, waiting_.size() - keep);
      waiting_.erase(0, waiting_.size() - keep);
      return out;
    }
    out += waiting_.substr(0, begin);
    waiting_.erase(0, begin);
    size_t end = waiting_.find(kEnd);
    if (end == std::string::npos) {
      if (waiting_.size() > kMostBytes) out += std::move(waiting_), waiting_.clear();
      return out;
    }
    take(std::string_view(waiting_).substr(head_.size(), end - head_.size()));
    waiting_.erase(0, end + 1);
  }
}

// A record that cannot be parsed is dropped.
void ReportReader::take(std::string_view record) {
  RankFailure failure;
  int by_signal = 0;
  const char* at = record.data();
  const char* end = at + record.size();
  for (int* number : {&failure.rank, &failure.code, &by_signal, &failure.because_of}) {
    auto [next, code] = std::from_chars(at, end, *number);
    if (code != std::errc{} || next == end) return;
    at = next + 1;
  }
  failure.by_signal = by_signal != 0;
  if (at < end) failure.text.assign(at, end);
  if (!failure.stopped()) {
    blame_.add(failure);
  } else if (!stopped_) {
    stopped_ = failure;
  }
}

}  // namespace ds
