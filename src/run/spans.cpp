#include "run/spans.h"

#include <cstdint>
#include <cstring>
#include <string>

#include "checkpoint/agree.h"
#include "core/base/trace.h"

namespace ds {
namespace {

// The fixed part of a serialized span. Its two texts follow it.
struct Fixed {
  int64_t begin_ns, end_ns, bytes;
  // The lengths of the two texts, in bytes.
  uint32_t track, name;
};

std::string pack(const std::vector<Trace::Span>& spans) {
  std::string out;
  for (const Trace::Span& s : spans) {
    Fixed fixed{s.begin_ns, s.end_ns, s.bytes, static_cast<uint32_t>(s.track.size()),
                static_cast<uint32_t>(s.name.size())};
    out.append(reinterpret_cast<const char*>(&fixed), sizeof fixed);
    out += s.track;
    out += s.name;
  }
  return out;
}

// Reads spans back from their bytes. The bytes come from a rank with the same build, so the lengths
// are trusted.
std::vector<Trace::Span> unpack(const std::string& text) {
  std::vector<Trace::Span> spans;
  for (size_t at = 0; at < text.size();) {
    Fixed fixed;
    std::memcpy(&fixed, text.data() + at, sizeof fixed);
    at += sizeof fixed;
    spans.push_back({text.substr(at, fixed.track), text.substr(at + fixed.track, fixed.name),
                     fixed.begin_ns, fixed.end_ns, fixed.bytes});
    at += fixed.track + fixed.name;
  }
  return spans;
}

}  // namespace

RankSpans gather_spans(Communicator& comm, const std::vector<Trace::Span>& mine) {
  RankSpans ranks;
  std::vector<std::string> texts = gather_texts(comm, pack(mine), "trace");
  for (size_t r = 0; r < texts.size(); ++r)
    ranks.emplace_back(static_cast<int>(r), unpack(texts[r]));
  return ranks;
}

}  // namespace ds
