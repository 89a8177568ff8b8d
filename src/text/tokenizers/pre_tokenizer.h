#pragma once
#include <memory>
#include <string>
#include <vector>

#include "core/base/json.h"
#include "text/tokenizers/pieces.h"
#include "text/tokenizers/section.h"
#include "text/tokenizers/traced_text.h"

namespace ds::text {

// One step from a normalized text to the words that the model gets. It cuts ranges further or
// rewrites the text.
class PreTokenizerStep {
 public:
  virtual ~PreTokenizerStep() = default;
  // `at_start` is true if the text begins the whole input instead of following a special token.
  virtual void apply(Pieces& pieces, bool at_start) const = 0;
};

// The "pre_tokenizer" of a tokenizer.json as a flat list of steps. Types: Sequence ByteLevel Split
// Metaspace Digits Punctuation WhitespaceSplit BertPreTokenizer.
struct PreTokenizer {
  std::vector<std::unique_ptr<const PreTokenizerStep>> steps;
  // True if the last step would spell bytes in ByteAlphabet. That step is left to the model.
  bool spells_bytes = false;

  // Runs the steps; the result has the words as ranges.
  Pieces apply(TracedText text, bool at_start) const;
};

PreTokenizer read_pre_tokenizer(const Json* json, const std::string& where);

}  // namespace ds::text
