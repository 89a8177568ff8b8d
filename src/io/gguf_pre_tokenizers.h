#pragma once
#include <string>

#include "core/base/json.h"

namespace ds {

// The parts of a tokenizer.json that a name of llama.cpp's pre-tokenizer stands for.
struct PreTokenizer {
  Json normalizer, pre_tokenizer;
  // Whether a word that is a token is not split by merges, and whether a text gets the token bos
  // unless the file says otherwise.
  bool ignore_merges = false, add_bos = false;
};

// Returns the parts for a name. Throws DS_ERROR_UNSUPPORTED, listing the known names, for another
// name.
PreTokenizer pre_tokenizer_of(const std::string& name);

// Returns the name for a tokenizer.json of byte-level BPE. Throws DS_ERROR_UNSUPPORTED, showing the
// parts, if none of the known names stands for them.
std::string pre_tokenizer_name(const Json& tokenizer);

}  // namespace ds
