#include "core/base/utf8.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstdint>

namespace ds {

namespace {

struct Prefix {
  // The length in bytes of the longest valid beginning of a sequence; at least 1.
  size_t length;
  // True if that beginning is a complete sequence.
  bool whole;
};

Prefix longest_prefix(std::string_view text) {
  auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  uint8_t lead = byte(0);
  if (lead < 0x80) return {1, true};
  if (lead < 0xc2 || lead > 0xf4) return {1, false};
  // The lead bytes c0, c1 and f5 to ff begin no sequence and were refused above.
  size_t length = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
  // The second byte's range excludes overlong forms, surrogates and values above U+10FFFF.
  uint8_t low = lead == 0xe0 ? 0xa0 : lead == 0xf0 ? 0x90 : 0x80;
  uint8_t high = lead == 0xed ? 0x9f : lead == 0xf4 ? 0x8f : 0xbf;
  for (size_t i = 1; i < length; ++i) {
    if (i == text.size() || byte(i) < low || byte(i) > high) return {i, false};
    low = 0x80;
    high = 0xbf;
  }
  return {length, true};
}

}  // namespace

size_t utf8_sequence(std::string_view text) {
  if (text.empty()) return 0;
  Prefix prefix = longest_prefix(text);
  return prefix.whole ? prefix.length : 0;
}

bool is_utf8(std::string_view text) {
  while (!text.empty()) {
    size_t length = utf8_sequence(text);
    if (length == 0) return false;
    text.remove_prefix(length);
  }
  return true;
}

// Replaces each maximal subpart, not each byte, as Python and web browsers do.
std::string repair_utf8(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    Prefix prefix = longest_prefix(text);
    out += prefix.whole ? text.substr(0, prefix.length) : "\xef\xbf\xbd";
    text.remove_prefix(prefix.length);
  }
  return out;
}

std::string show_controls(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    size_t length = std::max<size_t>(1, utf8_sequence(text));
    char32_t point = length == 1 ? static_cast<uint8_t>(text[0]) : utf8_first(text);
    bool hidden = is_control(point) && point != '\n' && point != '\t';
    out += hidden ? fmt::format("\\x{:02x}", static_cast<uint32_t>(point))
                  : std::string(text.substr(0, length));
    text.remove_prefix(length);
  }
  return out;
}

char32_t utf8_first(std::string_view text) {
  auto lead = static_cast<uint8_t>(text[0]);
  if (lead < 0x80) return lead;
  size_t length = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
  char32_t point = lead & (0x7f >> length);
  for (size_t i = 1; i < length; ++i) point = point << 6 | (static_cast<uint8_t>(text[i]) & 0x3f);
  return point;
}

std::string_view utf8_last(std::string_view text) {
  size_t begin = text.size() - 1;
  while (begin > 0 && (static_cast<uint8_t>(text[begin]) & 0xc0) == 0x80) --begin;
  return text.substr(begin);
}

void utf8_append(std::string& text, char32_t code_point) {
  auto add = [&](char32_t byte) { text.push_back(static_cast<char>(byte)); };
  if (code_point < 0x80) return add(code_point);
  int more = code_point < 0x800 ? 1 : code_point < 0x10000 ? 2 : 3;
  // The lead byte has one set bit for each byte of the sequence, then a zero and the highest bits.
  add((0xff00 >> (more + 1) & 0xff) | code_point >> 6 * more);
  while (more-- > 0) add(0x80 | (code_point >> 6 * more & 0x3f));
}

}  // namespace ds
