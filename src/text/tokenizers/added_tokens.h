#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizers/regex.h"

namespace ds::text {

// One entry of "added_tokens" in a tokenizer.json.
struct AddedToken {
  int32_t id = 0;
  std::string content;
  // True if decode() leaves the token out when it skips special tokens.
  bool special = false;
  // True if the token is searched for in normalized text, false if in the text as given.
  bool normalized = false;
  // True if the token does not match within a word.
  bool single_word = false;
  // `lstrip` is true if a match includes the spaces before it, `rstrip` if those after it.
  bool lstrip = false, rstrip = false;
  // True if a match stays ordinary text, which no other token can match (split_special_tokens).
  bool split = false;
};

// A search for added tokens in a text. It finds the leftmost ones and, among those that begin at
// the same position, the longest.
class AddedTokenFinder {
 public:
  AddedTokenFinder();
  // Adds a token. `content` is the text to look for and must not be empty.
  void add(std::string_view content, const AddedToken& token);
  // Completes the table. Must be called after the last add().
  void finish();

  // A range that is a token or, if the id is -1, text.
  struct Part {
    Range range;
    int32_t id = -1;
  };
  // Cuts a text at tokens. Returns its parts in order; ranges of text are never empty. As in
  // `tokenizers`, the search goes on within the spaces that a token with rstrip includes. The range
  // of a token that is found there overlaps the previous one, and the remaining spaces are text
  // again.
  std::vector<Part> find(std::string_view text) const;

 private:
  struct Entry {
    std::string content;
    AddedToken token;
  };
  // Returns the longest token whose content begins at `at`, or null.
  const Entry* longest_at(std::string_view text, size_t at) const;
  // Extends a match by the spaces that its token includes, but not before `done`.
  Range widened(std::string_view text, Range match, const AddedToken& token, size_t done) const;
  // Returns whether a word character precedes or follows the match.
  bool within_word(std::string_view text, Range match) const;

  // Sorted by content once finish() has been called.
  std::vector<Entry> entries_;
  // True for bytes with which the content of some token begins.
  std::array<bool, 256> begins_{};
  Regex space_, word_;
};

}  // namespace ds::text
