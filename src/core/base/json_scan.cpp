// Checks and cleans a JSON text in one pass before cJSON parses it.
//
// Problem: cJSON keeps every number as a double, which it reads by the locale. It accepts raw
// control characters, invalid UTF-8 and \u0000 in strings (which end there), and any character
// below 33 as a blank. It does not know comments and does not report positions.
//
// Invariant: the clean text is as long as the given one, so that an offset means the same place in
// both. In it, cJSON finds the strings and numbers of the lists, in their order, and nothing whose
// value it could get wrong.
//
// Algorithm: a loop over tokens. Comments become blanks, a number becomes 0 and blanks while its
// value is appended to a list, and everything that cJSON would wrongly accept is refused. Brackets
// are counted only to bound the depth; cJSON checks the grammar.
//
// Cost: one pass and one copy of the text, a value for each number and an offset for each string.
//
// Source: RFC 8259, and RFC 3629 for UTF-8. `Infinity` and `NaN` are as Python's json module writes
// and reads them.
#include "core/base/json_scan.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <limits>
#include <system_error>

#include "core/base/utf8.h"

namespace ds {
namespace {

constexpr size_t kMaxDepth = 200;

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

// Returns a byte in the form that messages show.
std::string shown(char c) {
  bool plain = c > 0x20 && c < 0x7f;
  return plain ? fmt::format("'{}'", c)
               : fmt::format("byte 0x{:02x}", static_cast<unsigned char>(c));
}

class Scanner {
 public:
  Scanner(std::string_view text, bool data) : text_(text), data_(data) {}

  JsonScan run() {
    out_.clean = text_;
    if (is_wide()) fail(0, "the text is UTF-16 or UTF-32; JSON is read as UTF-8");
    if (text_.starts_with("\xef\xbb\xbf")) blank(0, at_ = 3);
    while (at_ < text_.size()) token();
    return std::move(out_);
  }

 private:
  // Returns whether the text is UTF-16 or UTF-32: it then has a byte order mark, or a zero byte
  // among its first two bytes.
  bool is_wide() const {
    return text_.starts_with("\xff\xfe") || text_.starts_with("\xfe\xff") ||
           text_.substr(0, 2).find('\0') != std::string_view::npos;
  }
  [[noreturn]] void fail(size_t at, std::string message) const {
    throw JsonFault{at, std::move(message)};
  }
  char here() const { return at_ < text_.size() ? text_[at_] : '\0'; }
  // Overwrites a range with blanks but keeps line ends, so that line numbers stay right.
  void blank(size_t begin, size_t end) {
    for (size_t i = begin; i < end; ++i) {
      if (out_.clean[i] != '\n') out_.clean[i] = ' ';
    }
  }

  void token() {
    char c = text_[at_];
    switch (c) {
      case ' ':
      case '\t':
      case '\r':
      case '\n':
      case ',':
      case ':':
        ++at_;
        return;
      case '[':
      case '{':
        if (depth_ == kMaxDepth) fail(at_, fmt::format("nested deeper than {} levels", kMaxDepth));
        ++depth_, ++at_;
        return;
      case ']':
      case '}':
        // A bracket without its partner passes here; cJSON refuses it.
        depth_ -= depth_ > 0 ? 1 : 0, ++at_;
        return;
      case '"':
        return string();
      case '/':
        return comment();
      default:
        if (is_digit(c) || c == '-') return number();
        if (is_letter(c)) return word();
        fail(at_, fmt::format("syntax error: unexpected {}", shown(c)));
    }
  }

  void comment() {
    size_t begin = at_, end;
    std::string_view head = text_.substr(at_, 2);
    if (head == "//") {
      end = std::min(text_.find('\n', at_), text_.size());
    } else if (head == "/*") {
      // Starting after both characters keeps "/*/" from closing itself.
      size_t close = text_.find("*/", at_ + 2);
      if (close == std::string_view::npos)
        fail(begin, "syntax error: the comment that begins here is not closed");
      end = close + 2;
    } else {
      fail(at_, "syntax error: unexpected '/'");
    }
    blank(begin, at_ = end);
  }

  // Reads a word. true, false and null stay in the clean text for cJSON; Infinity and, in data, NaN
  // are added to the list of numbers; all other words are refused.
  void word() {
    size_t begin = at_;
    while (is_letter(here()) || is_digit(here()) || here() == '_') ++at_;
    std::string_view name = text_.substr(begin, at_ - begin);
    if (name == "true" || name == "false" || name == "null") return;
    if (name == "Infinity") return add_number(begin, Json::infinity());
    if (name == "NaN" && data_) return add_number(begin, Json::nan());
    if (name == "NaN") fail(begin, "syntax error: NaN is not a JSON value");
    fail(begin, fmt::format("syntax error: unexpected '{}'", name.substr(0, 20)));
  }

  void add_number(size_t begin, Json value) {
    // Without this check "1x" would become the number 1 and a stray x.
    static constexpr std::string_view follows(" \t\r\n,]}:/");
    if (at_ < text_.size() && follows.find(here()) == std::string_view::npos) {
      fail(at_, fmt::format("syntax error: unexpected {} after a number", shown(here())));
    }
    blank(begin, at_);
    out_.clean[begin] = '0';
    out_.numbers.push_back(std::move(value));
  }

  void digits() {
    if (!is_digit(here())) fail(std::min(at_, text_.size()), "syntax error: a number lacks digits");
    while (is_digit(here())) ++at_;
  }

  void number() {
    size_t begin = at_;
    if (here() == '-') ++at_;
    if (text_.substr(at_).starts_with("Infinity")) {
      at_ += std::string_view("Infinity").size();
      return add_number(begin, Json::infinity(true));
    }
    size_t whole = at_;
    digits();
    if (text_[whole] == '0' && at_ > whole + 1) fail(whole, "syntax error: a number begins with 0");
    size_t whole_digits = at_ - whole, point = at_, exponent = text_.size();
    bool real = here() == '.';
    if (real) ++at_, digits();
    size_t fraction_end = at_;
    if (here() == 'e' || here() == 'E') {
      real = true;
      exponent = ++at_;
      if (here() == '+')
        exponent = ++at_;
      else if (here() == '-')
        ++at_;
      digits();
    }
    std::string_view token = text_.substr(begin, at_ - begin);
    int64_t integer = 0;
    // An integer beyond int64 becomes the nearest double.
    if (!real &&
        std::from_chars(token.data(), token.data() + token.size(), integer).ec == std::errc()) {
      return add_number(begin, integer);
    }
    double value = 0;
    if (std::from_chars(token.data(), token.data() + token.size(), value).ec ==
        std::errc::result_out_of_range) {
      // from_chars does not say whether a number is too large or too small. The power of ten of its
      // first nonzero digit does.
      int64_t power = 0;
      if (exponent < at_ &&
          std::from_chars(text_.data() + exponent, text_.data() + at_, power).ec != std::errc()) {
        power = text_[exponent] == '-' ? std::numeric_limits<int64_t>::min() / 2
                                       : std::numeric_limits<int64_t>::max() / 2;
      }
      auto magnitude = static_cast<int64_t>(whole_digits);
      if (text_[whole] == '0') {
        magnitude = 0;
        for (size_t i = point + 1; i < fraction_end && text_[i] == '0'; ++i) --magnitude;
      }
      const bool negative = text_[begin] == '-';
      if (magnitude + power > 0 && data_) return add_number(begin, Json::infinity(negative));
      if (magnitude + power > 0)
        fail(begin, fmt::format("number overflow: '{}' does not fit a double", cut(token)));
      value = negative ? -0.0 : 0.0;
    }
    add_number(begin, value);
  }

  // Shortens a long token for a message.
  static std::string cut(std::string_view token) {
    return token.size() <= 40 ? std::string(token) : std::string(token.substr(0, 37)) + "...";
  }

  void string() {
    out_.strings.push_back(at_);
    size_t begin = at_++;
    value_bytes_ = 0;
    for (;;) {
      if (at_ >= text_.size())
        fail(begin, "syntax error: the string that begins here is not closed");
      char c = text_[at_];
      if (c == '"') {
        ++at_;
        return;
      }
      if (c == '\\') {
        escape();
      } else if (c >= 0 && c < 0x20) {
        fail(at_, fmt::format("syntax error: control character {} in a string", shown(c)));
      } else if (c >= 0) {
        ++at_, ++value_bytes_;
      } else {
        size_t length = utf8_sequence(text_.substr(at_));
        if (length == 0) fail(at_, fmt::format("syntax error: {} is not UTF-8", shown(c)));
        at_ += length, value_bytes_ += length;
      }
    }
  }

  // Checks an escape and counts the bytes of its UTF-8 form. Surrogates must come in pairs (RFC
  // 8259, section 7); each pair is one character of four bytes.
  void escape() {
    static constexpr std::string_view kinds("\"\\/bfnrt");
    size_t begin = at_++;
    char kind = here();
    if (kind != 'u') {
      if (at_ >= text_.size() || kinds.find(kind) == std::string_view::npos) {
        fail(begin, "syntax error: no such escape");
      }
      ++at_, ++value_bytes_;
      return;
    }
    --at_;
    uint32_t first = unit(begin);
    if (first == 0 && !data_) fail(begin, "syntax error: \\u0000 is not supported");
    if (first == 0) {
      out_.zeros.emplace_back(out_.strings.size() - 1, value_bytes_);
      out_.clean.replace(begin, 6, "\\u0020");
    }
    if (first < 0xd800 || first > 0xdfff) {
      value_bytes_ += first < 0x80 ? 1 : first < 0x800 ? 2 : 3;
      return;
    }
    bool paired = first < 0xdc00 && text_.substr(at_).starts_with("\\u");
    uint32_t second = paired ? unit(begin) : 0;
    if (second < 0xdc00 || second > 0xdfff) fail(begin, "syntax error: half of a surrogate pair");
    value_bytes_ += 4;
  }

  // Reads the code unit of \uXXXX at the current position.
  uint32_t unit(size_t begin) {
    uint32_t value = 0;
    std::string_view digits = text_.substr(std::min(at_ + 2, text_.size()), 4);
    auto [end, code] = std::from_chars(digits.data(), digits.data() + digits.size(), value, 16);
    if (digits.size() < 4 || code != std::errc() || end != digits.data() + 4) {
      fail(begin, "syntax error: \\u needs four hexadecimal digits");
    }
    at_ += 6;
    return value;
  }

  std::string_view text_;
  bool data_;
  size_t at_ = 0, depth_ = 0;
  // Bytes so far in the value of the string that is being read.
  size_t value_bytes_ = 0;
  JsonScan out_;
};

}  // namespace

JsonScan scan_json(std::string_view text, bool data) { return Scanner(text, data).run(); }

}  // namespace ds
