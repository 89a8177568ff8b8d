#pragma once
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/utf8.h"
#include "text/tokenizers/range.h"

namespace ds::text {

// A text derived from another one. If it is traced, each of its bytes has an origin: the range of
// whole characters of the other text from which it comes.
struct TracedText {
  std::string text;
  // One entry for each byte; empty unless traced.
  std::vector<Range> origin;
  bool traced = false;

  // Returns an empty text that is traced if `like` is.
  static TracedText empty_like(const TracedText& like) { return {{}, {}, like.traced}; }

  // Wraps a UTF-8 text that begins at byte `at` of the text to which the origins refer.
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

  // Returns the origin of the bytes of a range; an empty range if the text is not traced.
  Range source(Range range) const {
    if (!traced || range.begin >= range.end) return {};
    return {origin[range.begin].begin, origin[range.end - 1].end};
  }

  // Appends a range of another text with its origins.
  void copy(const TracedText& from, Range range) {
    text.append(from.text, range.begin, range.end - range.begin);
    if (!traced) return;
    auto at = [&](size_t i) { return from.origin.begin() + static_cast<std::ptrdiff_t>(i); };
    origin.insert(origin.end(), at(range.begin), at(range.end));
  }

  // Appends new text that comes from a range as a whole.
  void write(std::string_view more, Range from) {
    text += more;
    if (traced) origin.insert(origin.end(), more.size(), from);
  }
};

}  // namespace ds::text
