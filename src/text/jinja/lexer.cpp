// The lexer of templates.
//
// Problem: the difficult part of a template is its white space. Which spaces and line ends around a
// tag belong to the text depends on the signs at its delimiters (`-` removes, `+` keeps), on the
// options trim_blocks and lstrip_blocks, which Transformers sets, and on whether the tag begins its
// line.
//
// Algorithm: step() finds the next delimiter, decides how much of the text before it remains, and
// reads the tag, value or comment that follows; after_tag() removes the white space after it.
// Inside a tag, brackets are tracked, since "}}" may close two dictionaries. A tag {% raw %} turns
// everything up to {% endraw %} into text.
//
// Cost: linear in the source. Source: jinja2/lexer.py of Jinja 3.1.
#include "text/jinja/lexer.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <system_error>

#include "core/base/utf8.h"
#include "text/jinja/python_text.h"
#include "text/jinja/value.h"

namespace ds::text::jinja {
namespace {

using TokenKind = Token::Kind;

// The largest number of tokens in a template. Templates of real models have a few thousand.
constexpr size_t kMostTokens = 100000;

// Normalizes line ends as Jinja does: all become \n, and one at the very end is removed.
std::string normalize(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] != '\r') {
      out += source[i];
      continue;
    }
    out += '\n';
    if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
  }
  if (out.ends_with('\n')) out.pop_back();
  return out;
}

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
         static_cast<uint8_t>(c) >= 0x80;
}

class Lexer {
 public:
  Lexer(std::string source, int& line) : source_(std::move(source)), line_(line) {}

  std::vector<Token> run() {
    while (at_ < source_.size()) step();
    put(TokenKind::end, "");
    return std::move(tokens_);
  }

 private:
  std::string_view rest() const { return std::string_view(source_).substr(at_); }
  bool at(std::string_view text) const { return rest().starts_with(text); }
  void put(TokenKind kind, std::string text) {
    if (tokens_.size() >= kMostTokens) {
      fault(DS_ERROR_UNSUPPORTED, "a template may have at most {} words and marks", kMostTokens);
    }
    tokens_.push_back({kind, std::move(text), line_});
  }

  // Advances, and updates the line number and whether a line begins here.
  void advance(size_t bytes) {
    line_ += static_cast<int>(std::count(source_.begin() + static_cast<std::ptrdiff_t>(at_),
                                         source_.begin() + static_cast<std::ptrdiff_t>(at_ + bytes),
                                         '\n'));
    if (bytes > 0) line_start_ = source_[at_ + bytes - 1] == '\n';
    at_ += bytes;
  }

  void skip_spaces() { advance(rest().size() - strip(rest(), Side::left).size()); }

  // Reads text up to the next delimiter, then the tag, value or comment that it opens.
  void step() {
    size_t begin = at_;
    do {
      begin = std::min(source_.find('{', begin), source_.size());
      if (begin + 1 >= source_.size()) begin = source_.size();
      if (begin == source_.size()) break;
      char next = source_[begin + 1];
      if (next == '{' || next == '%' || next == '#') break;
      ++begin;
    } while (true);
    std::string_view text = std::string_view(source_).substr(at_, begin - at_);
    bool value = begin < source_.size() && source_[begin + 1] == '{';
    char sign = begin + 2 < source_.size() ? source_[begin + 2] : '\0';
    bool starts_line = line_start_;
    std::string shown(text);
    if (begin < source_.size() && sign == '-') {
      shown = strip(text, Side::right);
      // lstrip_blocks: spaces before a tag that begins its line are removed.
    } else if (begin < source_.size() && !value && sign != '+') {
      size_t line_begin = text.rfind('\n') + 1;  // npos + 1 is 0
      bool whole_line = line_begin > 0 || starts_line;
      if (whole_line && strip(text.substr(line_begin), Side::left).empty())
        shown.resize(line_begin);
    }
    if (!shown.empty()) put(TokenKind::text, std::move(shown));
    advance(text.size());
    if (at_ == source_.size()) return;
    bool signed_open = sign == '-' || (sign == '+' && !value);
    if (source_[at_ + 1] == '#') return comment();
    advance(signed_open ? 3 : 2);
    if (!value && raw()) return;
    inside(value);
  }

  void comment() {
    // Jinja's comments do not nest.
    size_t end = source_.find("#}", at_ + 2);
    if (end == std::string::npos) fault(DS_ERROR_CORRUPT, "a comment has no end");
    bool trims = source_[end - 1] == '-' && end > at_ + 2,
         keeps = source_[end - 1] == '+' && end > at_ + 2;
    advance(end + 2 - at_);
    after_tag(trims, keeps);
  }

  // Removes the white space after a tag or comment.
  void after_tag(bool trims, bool keeps) {
    if (trims) return skip_spaces();
    if (!keeps && at("\n")) advance(1);
  }

  // Reads {% raw %}: everything up to {% endraw %} is text. The opening delimiter has been read.
  bool raw() {
    size_t here = rest().size() - strip(rest(), Side::left).size() + at_;
    if (!std::string_view(source_).substr(here).starts_with("raw")) return false;
    std::string_view tail = strip(std::string_view(source_).substr(here + 3), Side::left);
    bool trims = tail.starts_with("-%}");
    if (!trims && !tail.starts_with("%}")) return false;
    advance(source_.size() - tail.size() + (trims ? 3 : 2) - at_);
    if (trims) skip_spaces();
    for (size_t open = source_.find("{%", at_); open != std::string::npos;
         open = source_.find("{%", open + 2)) {
      size_t name = open + 2;
      char sign = name < source_.size() ? source_[name] : '\0';
      if (sign == '-' || sign == '+') ++name;
      std::string_view end = strip(std::string_view(source_).substr(name), Side::left);
      if (!end.starts_with("endraw")) continue;
      end = strip(end.substr(6), Side::left);
      bool cuts = end.starts_with("-%}"), keeps = end.starts_with("+%}");
      if (!cuts && !keeps && !end.starts_with("%}")) continue;
      raw_text(open, sign);
      advance(source_.size() - end.size() + (cuts || keeps ? 3 : 2) - at_);
      after_tag(cuts, keeps);
      return true;
    }
    fault(DS_ERROR_CORRUPT, "{{% raw %}} has no {{% endraw %}}");
  }

  // Appends the text of a raw block. White space before {% endraw %} is treated as before any tag.
  void raw_text(size_t end, char sign) {
    std::string_view text = std::string_view(source_).substr(at_, end - at_);
    if (sign == '-') {
      text = strip(text, Side::right);
    } else if (sign != '+') {
      size_t line_begin = text.rfind('\n') + 1;
      if (line_begin > 0 && strip(text.substr(line_begin), Side::left).empty())
        text = text.substr(0, line_begin);
    }
    if (!text.empty()) put(TokenKind::text, std::string(text));
  }

  // Reads the tokens between the delimiters of a value or tag.
  void inside(bool value) {
    put(value ? TokenKind::open_value : TokenKind::open_tag, "");
    // The brackets that are open, the innermost last.
    std::string open;
    while (true) {
      skip_spaces();
      if (at_ == source_.size()) fault(DS_ERROR_CORRUPT, "a tag has no end");
      // Inside brackets, "}}" may close two dictionaries.
      if (open.empty() && close(value)) return;
      token(open);
    }
  }

  // Reads the closing delimiter if it is next. At the end of a value only a `-` is a sign; a `+`
  // would be an operator.
  bool close(bool value) {
    std::string_view end = value ? "}}" : "%}";
    char sign = source_[at_];
    bool trims = sign == '-', keeps = sign == '+' && !value;
    if (!rest().substr(trims || keeps ? 1 : 0).starts_with(end)) return false;
    put(value ? TokenKind::close_value : TokenKind::close_tag, "");
    advance(trims || keeps ? 3 : 2);
    if (value) {
      if (trims) skip_spaces();
    } else {
      after_tag(trims, keeps);
    }
    return true;
  }

  // Marks of two characters are tried before marks of one.
  void token(std::string& open) {
    char c = source_[at_];
    if (c == '\'' || c == '"') return string(c);
    if (is_digit(c)) return number();
    if (is_letter(c)) {
      size_t size = 0;
      while (at_ + size < source_.size() &&
             (is_letter(source_[at_ + size]) || is_digit(source_[at_ + size])))
        ++size;
      put(TokenKind::name, source_.substr(at_, size));
      return advance(size);
    }
    constexpr std::array<std::string_view, 7> kDouble{"==", "!=", "<=", ">=", "//", "**", ""};
    for (std::string_view mark : kDouble) {
      if (mark.empty() || !at(mark)) continue;
      put(TokenKind::mark, std::string(mark));
      return advance(2);
    }
    if (std::string_view("+-*/%~<>=()[]{}.,:|").find(c) == std::string_view::npos) {
      fault(DS_ERROR_CORRUPT, "character '{}' is unexpected in a tag", c);
    }
    if (std::string_view("([{").find(c) != std::string_view::npos) open += c;
    if (std::string_view(")]}").find(c) != std::string_view::npos) {
      char wanted = c == ')' ? '(' : c == ']' ? '[' : '{';
      if (open.empty() || open.back() != wanted)
        fault(DS_ERROR_CORRUPT, "'{}' has no opening bracket", c);
      open.pop_back();
    }
    put(TokenKind::mark, std::string(1, c));
    advance(1);
  }

  // As in Python, digits may be grouped by underscores.
  void number() {
    size_t size = 0;
    std::string digits;
    bool real = false;
    while (at_ + size < source_.size()) {
      char c = source_[at_ + size];
      char next = at_ + size + 1 < source_.size() ? source_[at_ + size + 1] : '\0';
      bool sign = (c == '+' || c == '-') && real && (digits.back() == 'e' || digits.back() == 'E');
      bool point = c == '.' && !real && is_digit(next);
      bool exponent = (c == 'e' || c == 'E') && (is_digit(next) || next == '+' || next == '-') &&
                      digits.find_first_of("eE") == digits.npos;
      if (!is_digit(c) && c != '_' && !sign && !point && !exponent) break;
      real = real || point || exponent;
      if (c != '_') digits += c;
      ++size;
    }
    put(real ? TokenKind::real : TokenKind::integer, digits);
    advance(size);
    if (at_ < source_.size() && is_letter(source_[at_])) {
      fault(DS_ERROR_UNSUPPORTED, "the number '{}{}' is unsupported", digits, source_[at_]);
    }
  }

  void string(char quote) {
    size_t end = at_ + 1;
    while (end < source_.size() && source_[end] != quote) end += source_[end] == '\\' ? 2 : 1;
    if (end >= source_.size()) fault(DS_ERROR_CORRUPT, "a string has no end");
    put(TokenKind::string, unescape(source_.substr(at_ + 1, end - at_ - 1)));
    advance(end + 1 - at_);
  }

  // Reads escapes as Python does, but refuses \N and octal ones.
  static std::string unescape(const std::string& text) {
    std::string out;
    for (size_t i = 0; i < text.size(); ++i) {
      if (text[i] != '\\' || i + 1 == text.size()) {
        out += text[i];
        continue;
      }
      char c = text[++i];
      constexpr std::string_view kNames = "ntrabfv\\'\"", kMeant = "\n\t\r\a\b\f\v\\'\"";
      if (size_t known = kNames.find(c); known != kNames.npos) {
        out += kMeant[known];
        // A backslash at the end of a line joins lines.
      } else if (c == '\n') {
      } else if (c == 'x' || c == 'u' || c == 'U') {
        i += hexadecimal(text, i + 1, c == 'x' ? 2 : c == 'u' ? 4 : 8, out);
      } else if (is_digit(c) || c == 'N') {
        fault(DS_ERROR_UNSUPPORTED, "the escape '\\{}' is unsupported", c);
      } else {
        out.append("\\") += c;
      }
    }
    return out;
  }

  // Surrogates are not characters, so they are refused.
  static size_t hexadecimal(const std::string& text, size_t at, size_t digits, std::string& out) {
    uint32_t point = 0;
    const char* begin = text.data() + std::min(at, text.size());
    const char* end = text.data() + std::min(at + digits, text.size());
    auto [last, error] = std::from_chars(begin, end, point, 16);
    if (error != std::errc() || last != begin + digits || point > 0x10ffff ||
        (point >= 0xd800 && point < 0xe000)) {
      fault(DS_ERROR_CORRUPT, "an escape of a string is not a character");
    }
    utf8_append(out, point);
    return digits;
  }

  std::string source_;
  int& line_;
  size_t at_ = 0;
  // True if the last character read ended a line.
  bool line_start_ = true;
  std::vector<Token> tokens_;
};

}  // namespace

std::vector<Token> tokenize(std::string_view source, int& line) {
  line = 1;
  return Lexer(normalize(source), line).run();
}

}  // namespace ds::text::jinja
