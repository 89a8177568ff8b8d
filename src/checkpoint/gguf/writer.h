#pragma once
#include <string>
#include <string_view>

#include "checkpoint/state_source.h"
#include "core/base/json.h"
#include "io/gguf_vocabulary.h"

namespace ds {

// The parts of a GGUF file besides the weights.
struct GgufContent {
  // The config.json of the model.
  Json config;
  GgufVocabulary vocabulary;
  // The name of the model, for people.
  std::string name;
  // "f32", "f16", "bf16" or "q8_0". Vectors, norms, position tables and routers are f32 in any
  // case, and q8_0 becomes f16 for rows that 32 does not divide.
  std::string type;
};

// Writes the masters of `source` as a GGUF file with the names, order and metadata that llama.cpp
// reads. The file appears at once and whole. Throws DS_ERROR_UNSUPPORTED for a family or option
// that the format or llama.cpp does not have, before anything is written.
void write_gguf(StateSource& source, const GgufContent& content, const std::string& path);

}  // namespace ds
