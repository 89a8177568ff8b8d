#pragma once
#include <string>
#include <utility>
#include <vector>

#include "core/base/dtype.h"
#include "core/base/json.h"

namespace ds {

// The model of a GGUF file without its weights.
struct GgufModel {
  // The config.json of the model's folder.
  Json config;
  // The type of a folder that loses nothing: f32, f16 or bf16 if the file has only this type and
  // f32 for vectors, otherwise bf16.
  DType dtype = DS_DTYPE_BF16;
};

// Throws DS_ERROR_CORRUPT for a damaged file, and DS_ERROR_UNSUPPORTED for an architecture, option
// or tokenizer that libds lacks; messages name the file.
GgufModel read_gguf_model(const std::string& path);

// Returns names and contents of the files of a model folder besides the weights, which are of the
// type `dtype`: the tokenizer, if the file has one, and at last config.json.
std::vector<std::pair<std::string, std::string>> gguf_side_files(const std::string& path,
                                                                 DType dtype);

}  // namespace ds
