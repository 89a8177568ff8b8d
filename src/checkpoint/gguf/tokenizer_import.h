#pragma once
#include <cstdint>
#include <string>

#include "io/gguf_vocabulary.h"

namespace ds {

// Reads the tokenizer of a model folder as the vocabulary of a GGUF file: tokenizer.json of
// byte-level BPE or of sentencepiece's BPE, tokenizer.model, or vocab.json with merges.txt, and the
// files beside it. A folder without these has a vocabulary of the model "none". `tokens` is the
// vocab_size of config.json; ids without a token become unused ones. Throws DS_ERROR_UNSUPPORTED,
// naming the file, for a tokenizer that llama.cpp does not have.
GgufVocabulary import_tokenizer(const std::string& folder, int64_t tokens);

}  // namespace ds
