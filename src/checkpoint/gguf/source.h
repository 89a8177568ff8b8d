#pragma once
#include <memory>
#include <string>

#include "checkpoint/gguf/vocabulary.h"
#include "checkpoint/state_source.h"
#include "core/base/dtype.h"
#include "core/base/json.h"

namespace ds {

// The model of a GGUF file as a source of masters, with the names, shapes and element order of a
// Hugging Face model folder.
class GgufSource : public StateSource {
 public:
  // The config.json of the folder.
  Json config;
  GgufVocabulary vocabulary;
  // The type of a folder that loses nothing: f32, f16 or bf16 if the file has only this type and
  // f32 for vectors, otherwise bf16.
  DType dtype = DS_DTYPE_BF16;
};

// Opens a GGUF file. Throws DS_ERROR_CORRUPT for a damaged file, and DS_ERROR_UNSUPPORTED for an
// architecture, tokenizer or element type that libds lacks; messages name the file. Every parameter
// of the model must have its tensor, of its shape, and no other tensors may be in the file.
std::unique_ptr<GgufSource> open_gguf(const std::string& path);

}  // namespace ds
