#pragma once
#include <memory>
#include <string>

#include "core/base/json.h"
#include "text/tokenizer.h"
#include "text/tokenizers/special_tokens.h"

namespace ds::text {

// Returns a tokenizer built from the content of a tokenizer.json. `path` becomes the name of the
// tokenizer and begins messages. `named` provides the names of tokens, the token that ends a text
// and the mask token.
std::unique_ptr<const Tokenizer> make_hugging_face(const Json& json, const std::string& path,
                                                   const SpecialTokens& named);

// Returns the pre-tokenizer or decoder "ByteLevel" of a tokenizer.json with Hugging Face's defaults
// for everything else.
Json byte_level(bool add_prefix_space);

}  // namespace ds::text
