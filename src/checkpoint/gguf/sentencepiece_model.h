#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "io/gguf_vocabulary.h"

namespace ds {

// The parts of a sentencepiece model (tokenizer.model) that a GGUF file has, too.
struct SentencePieceModel {
  std::vector<std::string> pieces;
  std::vector<double> scores;
  std::vector<TokenKind> kinds;
  // Whether pieces are joined by score (BPE). Otherwise the most likely pieces are chosen
  // (unigram), or there are only words or characters.
  bool is_bpe = false;
  bool add_dummy_prefix = true;
};

// Reads a tokenizer.model, which is a message of protocol buffers. Throws DS_ERROR_CORRUPT, naming
// the file, for a damaged message, and allocates nothing based on a size that the file declares
// unless the file has as many bytes.
SentencePieceModel read_sentencepiece_model(const std::string& path);

}  // namespace ds
