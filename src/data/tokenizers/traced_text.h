#pragma once
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/utf8.h"
#include "data/tokenizers/range.h"

namespace ds {

// A text that is made of another one, and, where it is traced, the range of whole characters of
// that one that each of its bytes comes from.
struct TracedText {
  std::string text;
  std::vector<Range> origin;  // by byte; empty unless traced
  bool traced = false;

  // Nothing yet, traced if `like` is.
  static TracedText empty_like(const TracedText& like) { return {{}, {}, like.traced}; }

  // The UTF-8 text itself, which begins at byte `at` of the one that ranges are of.
  static TracedText of(std::string_view text, size_t at, bool traced) {
    TracedText out{std::string(text), {}, traced};
    for (size_t begin = 0; traced && begin < text.size();) {
      size_t bytes = utf8_sequence(text.substr(begin));
      out.origin.insert(out.origin.end(), bytes, {at + begin, at + begin + bytes});
      begin += bytes;
    }
    return out;
  }

  std::string_view view(Range range) const {
    return std::string_view(text).substr(range.begin, range.end - range.begin);
  }

  // What the bytes of a range come from; an empty range where it is not traced.
  Range source(Range range) const {
    if (!traced || range.begin >= range.end) return {};
    return {origin[range.begin].begin, origin[range.end - 1].end};
  }

  void copy(const TracedText& from, Range range) {
    text.append(from.text, range.begin, range.end - range.begin);
    if (!traced) return;
    auto at = [&](size_t i) { return from.origin.begin() + static_cast<std::ptrdiff_t>(i); };
    origin.insert(origin.end(), at(range.begin), at(range.end));
  }

  void write(std::string_view more, Range from) {
    text += more;
    if (traced) origin.insert(origin.end(), more.size(), from);
  }
};

}  // namespace ds
