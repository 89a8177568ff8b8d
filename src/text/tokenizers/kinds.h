#pragma once
#include <memory>
#include <string>

#include "text/tokenizer.h"

namespace ds::text {

// These functions open the kinds of tokenizers that are read from files. They throw like
// open_tokenizer.

// Reads tokenizer.json.
std::unique_ptr<const Tokenizer> open_hugging_face(const std::string& path);
// Reads vocab.json and merges.txt.
std::unique_ptr<const Tokenizer> open_gpt2_pair(const std::string& folder);
// Reads vocab.txt.
std::unique_ptr<const Tokenizer> open_bert_vocabulary(const std::string& folder);
// Reads tokenizer.model.
std::unique_ptr<const Tokenizer> open_sentencepiece(const std::string& path);

}  // namespace ds::text
