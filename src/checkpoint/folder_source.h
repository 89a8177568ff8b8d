#pragma once
#include <memory>
#include <string>

#include "checkpoint/state_source.h"

namespace ds {

// Opens the weights of a Hugging Face model folder or of a GGUF file as a source of masters. Errors
// are those of build_hf_model(). Throws DS_ERROR_CONFIG if a folder lacks the model's head.
std::unique_ptr<StateSource> open_folder_source(const std::string& path);

}  // namespace ds
