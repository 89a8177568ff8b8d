// Finds added tokens by binary search among the sorted contents, one byte at a time, so the cost at
// a position grows only with the logarithm of the number of tokens.
#include "text/tokenizers/added_tokens.h"

#include <algorithm>

#include "core/base/utf8.h"

namespace ds::text {
namespace {

// Unicode's definition of a word character (Technical Standard 18, Annex C).
constexpr std::string_view word_character = R"([\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\p{Join_Control}])";

// Returns the character that begins at a byte.
std::string_view character_after(std::string_view text, size_t begin) {
  return text.substr(begin, utf8_sequence(text.substr(begin)));
}

bool matches(const Regex& regex, std::string_view text) {
  return Regex::Matches(regex, text).next().has_value();
}

}  // namespace

AddedTokenFinder::AddedTokenFinder()
    : space_("\\s", "added_tokens"), word_(word_character, "added_tokens") {}

void AddedTokenFinder::add(std::string_view content, const AddedToken& token) {
  begins_[static_cast<uint8_t>(content[0])] = true;
  entries_.push_back({std::string(content), token});
}

// The sort is stable, so that among equal contents the one that was added first wins.
void AddedTokenFinder::finish() {
  std::ranges::stable_sort(entries_,
                           [](const Entry& a, const Entry& b) { return a.content < b.content; });
}

// Narrows the sorted contents byte by byte to those that continue like the text, and remembers the
// longest that is complete.
const AddedTokenFinder::Entry* AddedTokenFinder::longest_at(std::string_view text,
                                                            size_t at) const {
  const Entry* found = nullptr;
  auto low = entries_.begin(), high = entries_.end();
  for (size_t depth = 0; low != high; ++depth) {
    if (low->content.size() == depth) {
      found = &*low;
      while (low != high && low->content.size() == depth) ++low;
    }
    if (at + depth >= text.size()) break;
    auto byte = static_cast<uint8_t>(text[at + depth]);
    auto value = [depth](const Entry& entry) { return static_cast<uint8_t>(entry.content[depth]); };
    low = std::partition_point(low, high, [&](const Entry& entry) { return value(entry) < byte; });
    high =
        std::partition_point(low, high, [&](const Entry& entry) { return value(entry) == byte; });
  }
  return found;
}

// A match is inside a word if a word character precedes or follows it.
bool AddedTokenFinder::within_word(std::string_view text, Range match) const {
  bool before = match.begin > 0 && matches(word_, utf8_last(text.substr(0, match.begin)));
  bool after = match.end < text.size() && matches(word_, character_after(text, match.end));
  return before || after;
}

Range AddedTokenFinder::widened(std::string_view text, Range match, const AddedToken& token,
                                size_t done) const {
  // As in `tokenizers`, spaces that the previous token includes are no longer available.
  if (token.lstrip) match.begin = std::max(match.begin, done);
  while (token.lstrip && match.begin > done) {
    std::string_view before = utf8_last(text.substr(0, match.begin));
    if (!matches(space_, before)) break;
    match.begin -= before.size();
  }
  while (token.rstrip && match.end < text.size()) {
    std::string_view after = character_after(text, match.end);
    if (!matches(space_, after)) break;
    match.end += after.size();
  }
  return match;
}

// Most bytes do not begin a token; begins_ saves the search for them.
std::vector<AddedTokenFinder::Part> AddedTokenFinder::find(std::string_view text) const {
  std::vector<Part> parts;
  size_t done = 0;
  for (size_t at = 0; at < text.size();) {
    const Entry* entry = begins_[static_cast<uint8_t>(text[at])] ? longest_at(text, at) : nullptr;
    if (!entry) {
      ++at;
      continue;
    }
    Range match{at, at + entry->content.size()};
    at = match.end;
    if (entry->token.split) continue;
    if (entry->token.single_word && within_word(text, match)) continue;
    match = widened(text, match, entry->token, done);
    if (match.begin >= match.end) continue;
    if (done < match.begin) parts.push_back({{done, match.begin}, -1});
    parts.push_back({match, entry->token.id});
    done = match.end;
  }
  if (done < text.size()) parts.push_back({{done, text.size()}, -1});
  return parts;
}

}  // namespace ds::text
