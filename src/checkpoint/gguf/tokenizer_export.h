#pragma once
#include <string>

#include "checkpoint/gguf/vocabulary.h"

namespace ds {

// Writes the files of a tokenizer into a folder, which must exist: tokenizer.json and
// tokenizer_config.json, with the chat template. A vocabulary of the model "none" has no files.
// Throws DS_ERROR_UNSUPPORTED for a pre-tokenizer without a known pattern.
void export_tokenizer(const GgufVocabulary& vocabulary, const std::string& folder);

}  // namespace ds
