#include "data/tokenizers/pattern.h"

#include "core/base/json.h"

namespace ds {

Regex read_pattern(Section& section) {
  Section pattern = section.inside("pattern");
  const Json* literal = pattern.find("String");
  std::string key = literal ? "String" : "Regex";
  std::string text = pattern.text(key);
  pattern.done();
  if (literal && text.empty()) section.unsupported("pattern");
  return {literal ? escape_regex(text) : text, pattern.path(key)};
}

std::string replace_all(const Regex& pattern, std::string_view text, std::string_view by, size_t most) {
  std::string out;
  size_t done = 0;
  Regex::Matches matches(pattern, text);
  while (auto match = matches.next()) {
    out.append(text, done, match->begin - done);
    out += by;
    done = match->end;
    if (out.size() > most) return out;
  }
  return out.append(text, done);
}

}  // namespace ds
