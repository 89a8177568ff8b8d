// Patterns of a tokenizer.json, and the replacement of their matches.
#include "text/tokenizers/pattern.h"

#include "core/base/json.h"
#include "core/base/utf8.h"

namespace ds::text {

// An empty literal would match everywhere, so it is refused.
Regex read_pattern(Section& section) {
  Section pattern = section.inside("pattern");
  const Json* literal = pattern.find("String");
  std::string key = literal ? "String" : "Regex";
  std::string text = pattern.text(key);
  pattern.done();
  if (literal && text.empty()) section.unsupported("pattern");
  return {literal ? escape_regex(text) : text, pattern.path(key)};
}

TracedText replace_all(const Regex& pattern, const TracedText& text, std::string_view by,
                       size_t most) {
  TracedText out = TracedText::empty_like(text);
  size_t done = 0;
  Regex::Matches matches(pattern, text.text);
  while (auto match = matches.next()) {
    out.copy(text, {done, match->begin});
    // As in `tokenizers`, the origin of a replacement is the last character of the match.
    const size_t size = match->end == 0 ? 0 : utf8_last(text.view({0, match->end})).size();
    out.write(by, text.source({match->end - size, match->end}));
    done = match->end;
    if (out.text.size() > most) return out;
  }
  out.copy(text, {done, text.text.size()});
  return out;
}

}  // namespace ds::text
