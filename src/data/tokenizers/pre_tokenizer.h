#pragma once
#include <memory>
#include <string>
#include <vector>

#include "core/base/json.h"
#include "data/tokenizers/pieces.h"
#include "data/tokenizers/section.h"
#include "data/tokenizers/traced_text.h"

namespace ds {

// One step from a normalized text to the words that the model sees: cuts ranges further or rewrites
// the text.
class PreTokenizerStep {
 public:
  virtual ~PreTokenizerStep() = default;
  // at_start: the pieces' text begins the whole input, rather than following a special token.
  virtual void apply(Pieces& pieces, bool at_start) const = 0;
};

// A tokenizer.json's "pre_tokenizer" as a flat list of steps. Types: Sequence ByteLevel Split
// Metaspace Digits Punctuation WhitespaceSplit BertPreTokenizer.
struct PreTokenizer {
  std::vector<std::unique_ptr<const PreTokenizerStep>> steps;
  bool spells_bytes =
      false;  // the last step would spell bytes in ByteAlphabet; it is left to the model

  Pieces apply(TracedText text, bool at_start) const;
};

PreTokenizer read_pre_tokenizer(const Json* json, const std::string& where);

}  // namespace ds
