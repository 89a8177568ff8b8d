#pragma once
#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "text/tokenizers/pieces.h"
#include "text/tokenizers/section.h"

namespace ds::text {

// A hash that is the same for std::string and std::string_view, so that maps are searched without a
// copy.
struct TextHash {
  using is_transparent = void;
  size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
};
using Vocabulary = std::unordered_map<std::string, int32_t, TextHash, std::equal_to<>>;

// The largest token id, which bounds the tables that are indexed by id.
constexpr int64_t max_token_id = (1 << 24) - 1;

// Returns the largest id allowed in a file of `tokens` tokens. Ids may leave holes, but a table of
// them stays about as large as the file.
constexpr int64_t largest_id(size_t tokens) {
  return std::min(max_token_id, 2 * static_cast<int64_t>(tokens) + 65535);
}

// The "model" of a tokenizer.json, which turns words into tokens. Any number of threads may share
// it.
class WordModel {
 public:
  virtual ~WordModel() = default;
  const Vocabulary& vocabulary() const { return vocabulary_; }
  // Appends the tokens of all pieces in order and, unless `sources` is null, the origin of the
  // bytes of each token.
  virtual void encode(const Pieces& words, std::vector<int32_t>& out,
                      std::vector<Range>* sources) const = 0;

 protected:
  // Reads "vocab".
  explicit WordModel(Section& section);
  // Returns the id of a text, or -1 if the text is outside the vocabulary.
  int32_t find(std::string_view text) const {
    auto found = vocabulary_.find(text);
    return found == vocabulary_.end() ? -1 : found->second;
  }

  Vocabulary vocabulary_;
};

// Reads the "model" of a file. With `spell_bytes`, which only BPE supports, words are bytes, and
// each byte is a character of ByteAlphabet. Types: BPE WordPiece.
std::unique_ptr<const WordModel> read_word_model(Section& file, bool spell_bytes);

}  // namespace ds::text
