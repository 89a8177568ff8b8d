#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "io/gguf.h"

namespace ds {

// The kind of a token, by the number that sentencepiece and GGUF give it.
enum class TokenKind : int64_t {
  normal = 1,
  unknown = 2,
  control = 3,
  user_defined = 4,
  unused = 5,
  byte = 6
};

// The vocabulary of a GGUF file.
struct GgufVocabulary {
  // "gpt2": byte-level BPE, "llama": BPE of sentencepiece, or "none".
  std::string model = "none";
  // For "gpt2": the name of the pre-tokenizer.
  std::string pre;
  // The spellings, by id. Those of normal tokens of "gpt2" are in GPT-2's alphabet of bytes.
  std::vector<std::string> tokens;
  std::vector<TokenKind> kinds;
  // For "llama": two pieces are joined before others if the score of the result is higher.
  std::vector<double> scores;
  // For "gpt2": pairs of pieces, separated by a space, in the order in which they are joined.
  std::vector<std::string> merges;
  // The ids of special tokens by their name in config.json: "bos", "eos", "unk", "sep", "pad",
  // "cls", "mask".
  std::vector<std::pair<std::string, int64_t>> special;
  // Whether a text gets the tokens bos and eos, and whether a space precedes it.
  std::optional<bool> add_bos, add_eos, add_space;
  std::string chat_template;

  // Returns the id of a special token, or nothing.
  std::optional<int64_t> find_special(const std::string& name) const;
};

// Reads the vocabulary of a GGUF file. Throws DS_ERROR_UNSUPPORTED for another kind of tokenizer,
// and DS_ERROR_CORRUPT for lists of different lengths, unknown kinds, and ids outside of the list.
GgufVocabulary read_vocabulary(const GgufHeader& header);
// Reads the vocabulary of the GGUF file `path`. Messages name the file.
GgufVocabulary read_vocabulary(const std::string& path);

// Adds the keys of a vocabulary to the metadata.
void add_vocabulary(const GgufVocabulary& vocabulary, GgufMetadata& metadata);

}  // namespace ds
