#pragma once
#include <string>

#include "io/safetensors.h"

namespace ds {

// Reads the tensors of a state dict that torch.save wrote, in either of its forms, and describes
// them like a safetensors header: by type, shape and offset in the file. Two names of one tensor
// have the same offset. Entries are in the order of the state dict; values that are not tensors are
// left out. Errors are those of torch_file.h. Also throws DS_ERROR_UNSUPPORTED, naming the tensor,
// if its data is compressed, and DS_ERROR_CORRUPT if the file has no tensors by name.
SafetensorHeader read_torch_weights(const std::string& path);

}  // namespace ds
