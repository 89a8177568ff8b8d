#pragma once
#include <string>
#include <string_view>

#include "io/gguf_vocabulary.h"

namespace ds {

// The files of a tokenizer that are made of the vocabulary of a GGUF file. The second one has the
// chat template.
inline constexpr const char* kGgufTokenizerFiles[] = {"tokenizer.json", "tokenizer_config.json"};

// Returns the content of one of these files. Throws DS_ERROR_UNSUPPORTED for a pre-tokenizer
// without a known pattern.
std::string gguf_tokenizer_text(const GgufVocabulary& vocabulary, std::string_view name);

// A GGUF file is read as if it were a folder with these files: the path of such a file is that of
// the GGUF file, "/" and its name. These functions accept such paths and those of other files.

// Returns whether the file exists.
bool has_tokenizer_file(const std::string& path);
// Returns the content of the file. Throws DS_ERROR_CORRUPT or DS_ERROR_UNSUPPORTED, naming the GGUF
// file and the key, for a vocabulary that is damaged or of another kind.
std::string read_tokenizer_file(const std::string& path);

}  // namespace ds
