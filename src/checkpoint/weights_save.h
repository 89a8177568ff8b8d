#pragma once
#include <string>

#include "checkpoint/state_access.h"

namespace ds {

// Masters to `folder`, which is made. With `like`, the folder they were loaded from: the same files with the
// same tensor names, dtypes and order, and its config and tokenizer files; without, or when that one has no
// weights: one model.safetensors, f32, tensors in the order of parameters. Each file appears at once and
// whole (rename). Collective: if one rank fails, every rank throws its error.
void save_weights(StateAccess& state, const std::string& folder, const std::string& like = "");

}  // namespace ds
