#pragma once
#include <memory>
#include <string>

#include "core/base/json.h"
#include "data/tokenizer.h"
#include "data/tokenizers/special_tokens.h"

namespace ds {

// The content of a tokenizer.json; path: for messages, and the tokenizer's name. Of `named`, the
// tokens that end a text and that mask one count.
std::unique_ptr<const Tokenizer> make_hugging_face(const Json& json, const std::string& path,
                                                   const SpecialTokens& named);

// The pre-tokenizer or decoder "ByteLevel" of a tokenizer.json, with Hugging Face's other defaults.
Json byte_level(bool add_prefix_space);

}  // namespace ds
