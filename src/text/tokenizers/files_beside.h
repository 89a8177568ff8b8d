#pragma once
#include "core/base/json.h"
#include "text/tokenizers/special_tokens.h"

namespace ds::text {

// Changes the content of a tokenizer.json as Transformers does because of the files beside it: adds
// their tokens, and sets the flags of tokenizer_config.json by which beside.tokenizer_class builds
// its normalizer and pre-tokenizer. A pad token that only "padding" of the file names is named in
// `beside`. Content without the form of such a file is left for its reader to refuse.
void add_files_beside(Json& json, SpecialTokens& beside);

}  // namespace ds::text
