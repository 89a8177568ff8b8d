#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizers/pieces.h"
#include "text/tokenizers/section.h"
#include "text/tokenizers/word_model.h"

namespace ds::text {

// WordPiece (Schuster and Nakajima, "Japanese and Korean voice search", ICASSP 2012) as BERT uses
// it. A word becomes the longest piece of the vocabulary with which it begins, then the longest
// piece with the prefix ("##") that continues it, and so on. A word that cannot be spelled in this
// way, or has too many characters, becomes one unknown token.
class WordPiece : public WordModel {
 public:
  explicit WordPiece(Section& section);
  void encode(const Pieces& words, std::vector<int32_t>& out,
              std::vector<Range>* sources) const override;

 private:
  bool spell(std::string_view word, std::string& piece, std::vector<int32_t>& out,
             std::vector<Range>& spans) const;

  std::string prefix_;
  int32_t unknown_ = 0;
  int64_t most_characters_ = 0;
  // Bytes of the longest piece.
  size_t longest_ = 0;
};

}  // namespace ds::text
