#pragma once
#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "data/tokenizers/pieces.h"
#include "data/tokenizers/section.h"

namespace ds {

// Hashes std::string and std::string_view alike, so that maps are searched without a copy.
struct TextHash {
  using is_transparent = void;
  size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
};
using Vocabulary = std::unordered_map<std::string, int32_t, TextHash, std::equal_to<>>;

constexpr int64_t max_token_id = (1 << 24) - 1;

// Largest id in a file of `tokens` tokens: ids may leave holes, but a table of them stays of the
// file's size.
constexpr int64_t largest_id(size_t tokens) {
  return std::min(max_token_id, 2 * static_cast<int64_t>(tokens) + 65535);
}

// The "model" of a tokenizer.json: words to tokens. Any number of threads may use one.
class WordModel {
 public:
  virtual ~WordModel() = default;
  const Vocabulary& vocabulary() const { return vocabulary_; }
  // Appends the tokens of all pieces, one after the other, and to `sources`, unless it is null,
  // what the bytes of each token come from.
  virtual void encode(const Pieces& words, std::vector<int32_t>& out,
                      std::vector<Range>* sources) const = 0;

 protected:
  explicit WordModel(Section& section);        // reads "vocab"
  int32_t find(std::string_view text) const {  // -1: not in the vocabulary
    auto found = vocabulary_.find(text);
    return found == vocabulary_.end() ? -1 : found->second;
  }

  Vocabulary vocabulary_;
};

// The "model" of a file. spell_bytes: words are bytes, each of which is a character of
// ByteAlphabet; for BPE only. Types: BPE WordPiece.
std::unique_ptr<const WordModel> read_word_model(Section& file, bool spell_bytes);

}  // namespace ds
