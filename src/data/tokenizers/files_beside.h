#pragma once
#include "core/base/json.h"
#include "data/tokenizers/special_tokens.h"

namespace ds {

// Changes the content of a tokenizer.json as Transformers does by the files beside it: their
// tokens, and the flags of tokenizer_config.json by which a class of Transformers builds its
// normalizer and pre-tokenizer. A pad token that only the file's "padding" names is named in
// `beside`. What has not the form of such a file is left for its reader to refuse.
void add_files_beside(Json& json, SpecialTokens& beside);

}  // namespace ds
