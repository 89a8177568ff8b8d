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

TracedText replace_all(const Regex& pattern, const TracedText& text, std::string_view by, size_t most) {
  TracedText out = TracedText::empty_like(text);
  size_t done = 0;
  Regex::Matches matches(pattern, text.text);
  while (auto match = matches.next()) {
    out.copy(text, {done, match->begin});
    // As in `tokenizers`: what a match is replaced by comes from its last character.
    size_t last = match->end;
    while (last > 0 && (static_cast<unsigned char>(text.text[--last]) & 0xc0) == 0x80) {
    }
    out.write(by, text.source({last, match->end}));
    done = match->end;
    if (out.text.size() > most) return out;
  }
  out.copy(text, {done, text.text.size()});
  return out;
}

}  // namespace ds
