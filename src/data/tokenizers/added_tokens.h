#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "data/tokenizers/regex.h"

namespace ds {

// One entry of a tokenizer.json's "added_tokens".
struct AddedToken {
  int32_t id = 0;
  std::string content;
  bool special = false;      // left out by decode
  bool normalized = false;   // searched for in normalized text, else in the text as given
  bool single_word = false;  // not within a word
  bool lstrip = false, rstrip = false;  // takes the spaces before, after it
};

// Finds added tokens in a text: of those that begin at the leftmost place the longest.
class AddedTokenFinder {
 public:
  AddedTokenFinder();
  void add(std::string_view content,
           const AddedToken& token);  // content: as it is looked for, not empty
  void finish();                      // after the last add

  // The text cut at tokens: ranges of text (id -1) and of tokens, in order, none of text empty. As
  // in `tokenizers`, a token that is found within the spaces that one with rstrip has taken counts,
  // too, and what follows it is text again: there ranges overlap.
  struct Part {
    Range range;
    int32_t id = -1;
  };
  std::vector<Part> find(std::string_view text) const;

 private:
  struct Entry {
    std::string content;
    AddedToken token;
  };
  const Entry* longest_at(std::string_view text, size_t at) const;
  Range widened(std::string_view text, Range match, const AddedToken& token, size_t done) const;
  bool within_word(std::string_view text, Range match) const;

  std::vector<Entry> entries_;      // sorted by content
  std::array<bool, 256> begins_{};  // some content begins with this byte
  Regex space_, word_;
};

}  // namespace ds
