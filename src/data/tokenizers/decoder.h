#pragma once
#include <functional>
#include <string>
#include <vector>

#include "data/tokenizers/section.h"

namespace ds {

// A tokenizer.json's "decoder": the spellings of tokens to the parts of a text, in order; joined, they are
// the text. Types: Sequence ByteLevel Replace ByteFallback Fuse Strip Metaspace BPEDecoder; null puts a space
// between tokens.
using Decoder = std::function<std::vector<std::string>(std::vector<std::string>)>;
Decoder read_decoder(const Json* json, const std::string& where);

}  // namespace ds
