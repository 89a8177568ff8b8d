#pragma once
#include <memory>
#include <string>

#include "data/tokenizer.h"

namespace ds {

// The kinds of tokenizers that are read from files; what they throw: open_tokenizer.
std::unique_ptr<const Tokenizer> open_hugging_face(const std::string& path);  // tokenizer.json
std::unique_ptr<const Tokenizer> open_gpt2_pair(
    const std::string& folder);  // vocab.json and merges.txt
std::unique_ptr<const Tokenizer> open_bert_vocabulary(const std::string& folder);  // vocab.txt
std::unique_ptr<const Tokenizer> open_sentencepiece(const std::string& path);  // tokenizer.model

}  // namespace ds
