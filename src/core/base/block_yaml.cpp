#include "core/base/block_yaml.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "core/base/ascii.h"
#include "core/base/contains.h"
#include "core/base/error.h"
#include "core/base/utf8.h"

namespace ds {
namespace {

// The deepest nesting of maps that is read. The bound protects the stack from untrusted text.
constexpr size_t kMostDepth = 50;

// A line that has content, without its indent and its comment.
struct YamlLine {
  size_t number = 0, indent = 0;
  // The content, which is never empty.
  std::string_view text;
};

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t' || text.back() == '\r'))
    text.remove_suffix(1);
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  return text;
}

// Returns the offset at which a comment begins: a '#' at the start of the line or after a blank or
// tab, outside quotes. Without one, returns the size of the line.
size_t comment_of(std::string_view line) {
  char quote = 0;
  for (size_t i = 0; i < line.size(); ++i) {
    char c = line[i], before = i == 0 ? ' ' : line[i - 1];
    if (quote != 0) {
      if (c == '\\' && quote == '"') ++i;
      if (c == quote) quote = 0;
    } else if ((c == '"' || c == '\'') && (before == ' ' || i == 0)) {
      quote = c;
    } else if (c == '#' && (before == ' ' || before == '\t')) {
      return i;
    }
  }
  return line.size();
}

// Returns the offset of the ':' of "key:" or "key: value", or npos.
size_t colon_of(std::string_view text) {
  size_t from = 0;
  if (!text.empty() && (text[0] == '"' || text[0] == '\'')) {
    from = text.find(text[0], 1);
    if (from == text.npos) return text.npos;
    ++from;
  }
  for (size_t at = text.find(':', from); at != text.npos; at = text.find(':', at + 1)) {
    if (at + 1 == text.size() || text[at + 1] == ' ') return at;
  }
  return text.npos;
}

// Returns the lines of a text that have content. Blank lines and comments have no meaning in YAML.
std::vector<YamlLine> lines_of(std::string_view text) {
  std::vector<YamlLine> out;
  // Skips the byte order mark of UTF-8.
  if (text.starts_with("\xef\xbb\xbf")) text.remove_prefix(3);
  for (size_t number = 1; !text.empty(); ++number) {
    size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    line = line.substr(0, comment_of(line));
    size_t indent = std::min(line.find_first_not_of(' '), line.size());
    line = trimmed(line);
    if (!line.empty()) out.push_back({number, indent, line});
  }
  return out;
}

class YamlReader {
 public:
  YamlReader(std::vector<YamlLine> lines, std::string_view source)
      : lines_(std::move(lines)), source_(source) {}

  Json document() {
    if (at_ < lines_.size() && lines_[at_].text == "---") ++at_;
    if (at_ == lines_.size()) return Json(Json::Object{});
    for (const YamlLine& line : lines_) {
      if (line.text.front() == '\t')
        refuse(line, "is indented by a tab; YAML is indented by blanks");
    }
    Json out = map(lines_[at_].indent, 0);
    if (at_ < lines_.size()) refuse(lines_[at_], "is not indented like the lines before it");
    return out;
  }

 private:
  [[noreturn]] void refuse(const YamlLine& line, std::string_view reason) const {
    raise(DS_ERROR_CONFIG, "{}: line {}: \"{}\" {}", source_, line.number, line.text.substr(0, 60),
          reason);
  }

  // Reads consecutive lines of one indent as a map. Only the indent of a line decides to which map
  // the line belongs.
  Json map(size_t indent, size_t depth) {
    if (depth == kMostDepth) refuse(lines_[at_], "is nested too deep");
    Json::Object out;
    while (at_ < lines_.size() && lines_[at_].indent == indent) {
      const YamlLine line = lines_[at_++];
      const size_t colon = colon_of(line.text);
      if (colon == line.text.npos || line.text.starts_with("- ")) {
        refuse(line,
               "is not of the form \"key: value\", the only YAML lines that libds reads here");
      }
      const Json key = scalar(line, trimmed(line.text.substr(0, colon)));
      const std::string name = key.is_string() ? key.string() : key.dump();
      auto same = [&](const auto& member) { return member.first == name; };
      if (std::ranges::any_of(out, same)) refuse(line, "repeats a key of this map");
      out.emplace_back(name, value(line, trimmed(line.text.substr(colon + 1)), depth));
    }
    if (at_ < lines_.size() && lines_[at_].indent > indent)
      refuse(lines_[at_], "is not indented like the lines before it");
    return Json(std::move(out));
  }

  // Reads the value of a key: the scalar on the key's line, or the more deeply indented block that
  // follows. A list may have the indent of its key, as PyYAML writes it.
  Json value(const YamlLine& line, std::string_view text, size_t depth) {
    if (!text.empty()) return scalar(line, text);
    if (at_ == lines_.size()) return {};
    const YamlLine& next = lines_[at_];
    if (next.text.starts_with("- ") && next.indent >= line.indent) return list(next.indent);
    return next.indent > line.indent ? map(next.indent, depth + 1) : Json();
  }

  Json list(size_t indent) {
    Json::Array out;
    while (at_ < lines_.size() && lines_[at_].indent == indent &&
           lines_[at_].text.starts_with("- ")) {
      const YamlLine& line = lines_[at_++];
      std::string_view item = trimmed(line.text.substr(2));
      if (colon_of(item) != item.npos || item.starts_with("- "))
        refuse(line, "is an item that is not a plain value, which libds does not read");
      out.push_back(scalar(line, item));
    }
    return Json(std::move(out));
  }

  Json scalar(const YamlLine& line, std::string_view text) const {
    if (!is_utf8(text)) refuse(line, "is not UTF-8");
    if (text == "{}") return Json(Json::Object{});
    if (text == "[]") return Json(Json::Array{});
    if (text.front() == '\'' || text.front() == '"') return quoted(line, text);
    if (std::string_view("&*!|>{[%@`").find(text.front()) != std::string_view::npos)
      refuse(line, "uses YAML syntax that libds does not read");
    return plain(text);
  }

  Json quoted(const YamlLine& line, std::string_view text) const {
    const char quote = text.front();
    if (text.size() < 2 || text.back() != quote)
      refuse(line, "has a text without its closing quote");
    // Double-quoted text is parsed as JSON; escapes that only YAML has are refused.
    if (quote == '"') return Json::parse(text, source_);
    std::string out;
    text = text.substr(1, text.size() - 2);
    // In single quotes the only escape is a doubled quote.
    for (size_t i = 0; i < text.size(); ++i) {
      if (text[i] == '\'' && text.substr(i, 2) != "''") refuse(line, "has a quote inside a text");
      if (text[i] == '\'') ++i;
      out += text[i];
    }
    return Json(std::move(out));
  }

  // Returns a plain scalar as null, a boolean, a decimal number or else a string. PyYAML, too,
  // reads "inf", "nan" and 1e-5, which has no dot, as strings; from_chars would read them as
  // numbers.
  static Json plain(std::string_view text) {
    const std::string word = ascii_lower(text);
    auto is = [&](const auto& words) { return contains(words, word); };
    if (is(std::array{"null", "~"})) return {};
    if (is(std::array{"true", "yes", "on"})) return Json(true);
    if (is(std::array{"false", "no", "off"})) return Json(false);
    const std::string_view digits = text.starts_with('+') ? text.substr(1) : text;
    const char *begin = digits.data(), *end = begin + digits.size();
    int64_t integer = 0;
    if (auto [last, code] = std::from_chars(begin, end, integer);
        code == std::errc() && last == end)
      return Json(integer);
    double number = 0;
    const bool point = digits.find('.') != digits.npos && word.find_first_of("in") == word.npos;
    if (auto [last, code] = std::from_chars(begin, end, number);
        point && code == std::errc() && last == end)
      return Json(number);
    return Json(std::string(text));
  }

  std::vector<YamlLine> lines_;
  std::string_view source_;
  size_t at_ = 0;
};

}  // namespace

bool looks_like_yaml(std::string_view text) {
  const std::vector<YamlLine> lines = lines_of(text.substr(0, 1 << 14));
  if (lines.empty()) return false;
  const std::string_view first = lines[0].text;
  if (first == "---" || first.starts_with("%YAML") || first.starts_with("- ")) return true;
  return first.front() != '{' && first.front() != '[' && colon_of(first) != first.npos;
}

Json parse_block_yaml(std::string_view text, std::string_view source) {
  return YamlReader(lines_of(text), source).document();
}

}  // namespace ds
