#include "core/config/config_text.h"

#include <algorithm>
#include <cstddef>
#include <string>

#include "core/base/block_yaml.h"
#include "core/base/content_kind.h"
#include "core/base/error.h"
#include "core/config/accelerate.h"

namespace ds {
namespace {

// A text of equal length in which comments are blanks, and so is a comma between a value and a
// closing bracket.
std::string without_hjson(std::string_view text) {
  std::string out(text);
  char last = 0;            // what says something
  size_t comma = out.npos;  // the comma that this is, behind a value
  auto blank = [&](size_t begin, size_t end) {
    for (size_t i = begin; i < end; ++i) out[i] = out[i] == '\n' ? '\n' : ' ';
  };
  for (size_t at = 0; at < out.size(); ++at) {
    const char c = out[at];
    const std::string_view two = std::string_view(out).substr(at, 2);
    if (c == '#' || two == "//") {
      blank(at, std::min(out.find('\n', at), out.size()));
    } else if (two == "/*") {
      const size_t end = out.find("*/", at + 2);
      blank(at, end == out.npos ? out.size() : end + 2);
    } else if (c != ' ' && c != '\t' && c != '\r' && c != '\n') {
      if (c == '"') {
        while (++at < out.size() && out[at] != '"') at += out[at] == '\\' ? 1 : 0;
      } else if (c == ',') {
        comma = std::string_view("{[,:").find(last) == std::string_view::npos && last != 0
                    ? at
                    : out.npos;
      } else if ((c == '}' || c == ']') && last == ',' && comma != out.npos) {
        out[comma] = ' ';
      }
      last = c;
    }
  }
  return out;
}

// A name without quotes where JSON has one in quotes.
bool has_bare_name(std::string_view text) {
  const size_t open = text.find('{');
  if (open == text.npos) return false;
  const size_t at = text.find_first_not_of(" \t\r\n", open + 1);
  if (at == text.npos) return false;
  const char c = text[at];
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c == '\'';
}

Json parse_dialect(std::string_view text, std::string_view source, const Error& fault) {
  if (text.empty()) throw fault;
  const std::string kind = content_kind(text.substr(0, kContentHead), Wanted::text);
  const bool yaml = looks_like_yaml(text);
  if (!yaml && !kind.empty()) raise(DS_ERROR_CONFIG, "{}: is {}", source, kind);
  if (yaml) return accelerate_config(parse_block_yaml(text, source), source);
  const std::string clean = without_hjson(text);
  if (has_bare_name(clean)) {
    raise(DS_ERROR_CONFIG,
          "{}; the file is hjson or Python's: JSON has names and texts in double quotes (comments "
          "and commas "
          "at the end are read)",
          fault.what());
  }
  return Json::parse(clean, source);
}

}  // namespace

Json parse_config_text(std::string_view text, std::string_view source) {
  try {
    return Json::parse(text, source);
  } catch (const Error& fault) {
    return parse_dialect(text, source, fault);
  }
}

}  // namespace ds
