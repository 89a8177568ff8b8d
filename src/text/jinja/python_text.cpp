// Python's text methods on UTF-8. Each byte that is not UTF-8 is treated as a character.
#include "text/jinja/python_text.h"

#include <fmt/core.h>
#include <utf8proc.h>

#include <algorithm>
#include <cstring>
#include <set>
#include <utility>

#include "core/base/utf8.h"
#include "text/jinja/fault.h"

namespace ds::text::jinja {
namespace {

size_t sequence(std::string_view text) { return std::max<size_t>(utf8_sequence(text), 1); }

bool any_space(std::string_view one) { return utf8_sequence(one) > 0 && is_space(utf8_first(one)); }

// Returns whether the uppercase form of a character may have several characters in Python
// (SpecialCasing.txt of Unicode). The ranges also contain characters whose form is one character.
bool grows_in_capitals(char32_t c) {
  return c == 0xdf || c == 0x149 || c == 0x1f0 || c == 0x390 || c == 0x3b0 || c == 0x587 ||
         (c >= 0x1e96 && c <= 0x1e9a) || (c >= 0x1f50 && c <= 0x1fff) ||
         (c >= 0xfb00 && c <= 0xfb17);
}

enum class Case { upper, lower, title };

// Maps one character. Characters for which Unicode's simple mapping may differ from Python's are
// refused.
void append_case(std::string& out, std::string_view one, Case form) {
  auto point = utf8_sequence(one) > 0 ? utf8_first(one) : char32_t{0xfffd};
  bool special = form == Case::lower ? point == 0x130 || point == 0x3a3 : grows_in_capitals(point);
  if (special) {
    fault(DS_ERROR_UNSUPPORTED,
          "{} of '{}' is unsupported: it becomes several characters or depends on others",
          form == Case::lower ? "lower" : "upper", one);
  }
  auto from = static_cast<utf8proc_int32_t>(point);
  utf8proc_int32_t to = form == Case::lower   ? utf8proc_tolower(from)
                        : form == Case::upper ? utf8proc_toupper(from)
                                              : utf8proc_totitle(from);
  utf8_append(out, static_cast<char32_t>(to));
}

// Maps character by character; lengths in bytes may change.
std::string map_case(std::string_view text, Case form) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    size_t size = sequence(text);
    append_case(out, text.substr(0, size), form);
    text.remove_prefix(size);
  }
  return out;
}

using Points = std::pair<char32_t, char32_t>;

// Characters that are lowercase or uppercase without being letters of that category
// (Other_Lowercase and Other_Uppercase in Unicode 14), such as U+00AA.
constexpr Points kOtherLower[] = {
    {0xaa, 0xaa},       {0xba, 0xba},       {0x2b0, 0x2b8},     {0x2c0, 0x2c1},    {0x2e0, 0x2e4},
    {0x345, 0x345},     {0x37a, 0x37a},     {0x1d2c, 0x1d6a},   {0x1d78, 0x1d78},  {0x1d9b, 0x1dbf},
    {0x2071, 0x2071},   {0x207f, 0x207f},   {0x2090, 0x209c},   {0x2170, 0x217f},  {0x24d0, 0x24e9},
    {0x2c7c, 0x2c7d},   {0xa69c, 0xa69d},   {0xa770, 0xa770},   {0xa7f8, 0xa7f9},  {0xab5c, 0xab5f},
    {0x10780, 0x10780}, {0x10783, 0x10785}, {0x10787, 0x107b0}, {0x107b2, 0x107ba}};
constexpr Points kOtherUpper[] = {
    {0x2160, 0x216f}, {0x24b6, 0x24cf}, {0x1f130, 0x1f149}, {0x1f150, 0x1f169}, {0x1f170, 0x1f189}};

// The case of a character for str.islower, str.isupper and str.title.
enum class Cased { no, lower, upper, title };
Cased cased(std::string_view one) {
  if (utf8_sequence(one) == 0) return Cased::no;
  const char32_t point = utf8_first(one);
  const auto kind = utf8proc_category(static_cast<utf8proc_int32_t>(point));
  auto among = [point](const Points& p) { return point >= p.first && point <= p.second; };
  if (kind == UTF8PROC_CATEGORY_LT) return Cased::title;
  if (kind == UTF8PROC_CATEGORY_LL || std::ranges::any_of(kOtherLower, among)) return Cased::lower;
  if (kind == UTF8PROC_CATEGORY_LU || std::ranges::any_of(kOtherUpper, among)) return Cased::upper;
  return Cased::no;
}

// Returns whether a text has characters of this case, and none of another.
bool is_all(std::string_view text, Cased wanted) {
  bool any = false;
  while (!text.empty()) {
    const std::string_view one = text.substr(0, sequence(text));
    const Cased found = cased(one);
    if (found != Cased::no && found != wanted) return false;
    any = any || found == wanted;
    text.remove_prefix(one.size());
  }
  return any;
}

// Returns whether Python's repr shows a character as it is; others become escapes.
bool is_printable(char32_t point) {
  if (point == ' ') return true;
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(point))) {
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
    case UTF8PROC_CATEGORY_ZS:
      return false;
    default:
      return true;
  }
}

// Appends Python's shortest escape for a character.
void append_escape(std::string& out, char32_t point) {
  auto number = static_cast<uint32_t>(point);
  if (point == '\n') {
    out += "\\n";
  } else if (point == '\r') {
    out += "\\r";
  } else if (point == '\t') {
    out += "\\t";
  } else if (number < 0x100) {
    out += fmt::format("\\x{:02x}", number);
  } else if (number < 0x10000) {
    out += fmt::format("\\u{:04x}", number);
  } else {
    out += fmt::format("\\U{:08x}", number);
  }
}

}  // namespace

// Differs from Unicode's White_Space by U+001C to U+001F.
bool is_space(char32_t c) {
  return (c >= 0x9 && c <= 0xd) || (c >= 0x1c && c <= 0x20) || c == 0x85 || c == 0xa0 ||
         c == 0x1680 || (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f ||
         c == 0x205f || c == 0x3000;
}

// Works on characters, since `chars` may hold more than ASCII.
std::string_view strip(std::string_view text, Side side, const std::string* chars) {
  std::set<std::string_view> given;
  for (std::string_view rest = chars ? std::string_view(*chars) : ""; !rest.empty();) {
    given.insert(rest.substr(0, sequence(rest)));
    rest.remove_prefix(sequence(rest));
  }
  auto gone = [&](std::string_view one) { return chars ? given.contains(one) : any_space(one); };
  while (side != Side::right && !text.empty()) {
    std::string_view one = text.substr(0, sequence(text));
    if (!gone(one)) break;
    text.remove_prefix(one.size());
  }
  while (side != Side::left && !text.empty()) {
    std::string_view one = utf8_last(text);
    if (!gone(one)) break;
    text.remove_suffix(one.size());
  }
  return text;
}

// memmem takes linear time; find() of a string does not.
size_t find_text(std::string_view text, std::string_view part, size_t from) {
  if (from > text.size()) return text.npos;
  if (part.empty()) return from;
  const void* found = memmem(text.data() + from, text.size() - from, part.data(), part.size());
  return found ? static_cast<size_t>(static_cast<const char*>(found) - text.data()) : text.npos;
}

// An empty `from` is found before every character and at the end.
std::string replace_text(std::string_view text, std::string_view from, std::string_view to,
                         int64_t most) {
  std::string out;
  size_t at = 0;
  for (int64_t made = 0; most < 0 || made < most; ++made) {
    if (from.empty()) {
      out += to;
      if (at == text.size()) return out;
      size_t size = sequence(text.substr(at));
      out += text.substr(at, size);
      at += size;
      continue;
    }
    size_t found = find_text(text, from, at);
    if (found == text.npos) break;
    out.append(text.substr(at, found - at)).append(to);
    at = found + from.size();
  }
  return out.append(text.substr(at));
}

// A run of spaces is one separator. With a limit, the last part keeps its inner spaces.
std::vector<std::string> split_spaces(std::string_view text, int64_t most) {
  std::vector<std::string> out;
  for (text = strip(text, Side::left); !text.empty(); text = strip(text, Side::left)) {
    size_t end = 0;
    bool last = most >= 0 && static_cast<int64_t>(out.size()) == most;
    while (!last && end < text.size() && !any_space(text.substr(end, sequence(text.substr(end))))) {
      end += sequence(text.substr(end));
    }
    out.emplace_back(last ? text : text.substr(0, end));
    text.remove_prefix(last ? text.size() : end);
  }
  return out;
}

std::vector<std::string> split_text(std::string_view text, std::string_view separator,
                                    int64_t most) {
  if (separator.empty()) fault(DS_ERROR_CONFIG, "split needs a separator that is not empty");
  std::vector<std::string> out;
  size_t at = 0;
  while (most < 0 || static_cast<int64_t>(out.size()) < most) {
    size_t found = find_text(text, separator, at);
    if (found == text.npos) break;
    out.emplace_back(text.substr(at, found - at));
    at = found + separator.size();
  }
  out.emplace_back(text.substr(at));
  return out;
}

std::vector<std::string> split_text_right(std::string_view text, std::string_view separator,
                                          int64_t most) {
  // Cuts everywhere, then joins the parts before the last `most` cuts again.
  std::vector<std::string> parts = split_text(text, separator, -1);
  size_t cuts = parts.size() - 1;
  if (most < 0 || cuts <= static_cast<size_t>(most)) return parts;
  std::vector<std::string> out{parts[0]};
  for (size_t i = 1; i < parts.size(); ++i) {
    if (i <= cuts - static_cast<size_t>(most)) {
      out[0].append(separator).append(parts[i]);
    } else {
      out.push_back(parts[i]);
    }
  }
  return out;
}

std::vector<std::string> split_lines(std::string_view text) {
  std::vector<std::string> out;
  size_t begin = 0, at = 0;
  while (at < text.size()) {
    size_t size = sequence(text.substr(at));
    // Python's line ends include more than \n.
    char32_t c =
        utf8_sequence(text.substr(at)) > 0 ? utf8_first(text.substr(at)) : char32_t{0xfffd};
    bool end = (c >= 0xa && c <= 0xd) || (c >= 0x1c && c <= 0x1e) || c == 0x85 || c == 0x2028 ||
               c == 0x2029;
    if (end) out.emplace_back(text.substr(begin, at - begin));
    at += size;
    if (c == '\r' && at < text.size() && text[at] == '\n') ++at;
    if (end) begin = at;
  }
  if (begin < text.size()) out.emplace_back(text.substr(begin));
  return out;
}

std::string upper(std::string_view text) { return map_case(text, Case::upper); }
std::string lower(std::string_view text) { return map_case(text, Case::lower); }

std::string capitalize(std::string_view text) {
  if (text.empty()) return "";
  size_t size = sequence(text);
  return map_case(text.substr(0, size), Case::title) + map_case(text.substr(size), Case::lower);
}

// A cased character after an uncased one begins a word.
std::string title(std::string_view text) {
  std::string out;
  bool inside = false;
  while (!text.empty()) {
    std::string_view one = text.substr(0, sequence(text));
    append_case(out, one, inside ? Case::lower : Case::title);
    inside = cased(one) != Cased::no;
    text.remove_prefix(one.size());
  }
  return out;
}

bool is_lower(std::string_view text) { return is_all(text, Cased::lower); }
bool is_upper(std::string_view text) { return is_all(text, Cased::upper); }

std::string repr_text(std::string_view text) {
  // Python uses double quotes only if the text contains single quotes and no double ones.
  bool single = text.find('\'') != text.npos && text.find('"') == text.npos;
  char quote = single ? '"' : '\'';
  std::string out(1, quote);
  while (!text.empty()) {
    std::string_view one = text.substr(0, sequence(text));
    text.remove_prefix(one.size());
    char32_t point = utf8_sequence(one) > 0 ? utf8_first(one) : char32_t{0xfffd};
    if (one[0] == quote || one[0] == '\\') {
      out.append("\\").append(one);
    } else if (is_printable(point)) {
      out += one;
    } else {
      append_escape(out, point);
    }
  }
  return out + quote;
}

int64_t length(std::string_view text) {
  return std::ranges::count_if(text,
                               [](char c) { return (static_cast<uint8_t>(c) & 0xc0) != 0x80; });
}

size_t offset_of(std::string_view text, int64_t index) {
  size_t at = 0;
  for (int64_t i = 0; i < index && at < text.size(); ++i) at += sequence(text.substr(at));
  return at;
}

}  // namespace ds::text::jinja
