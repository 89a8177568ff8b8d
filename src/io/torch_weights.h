#pragma once
#include <string>

#include "io/safetensors.h"

namespace ds {

// The tensors of a state dict that torch.save wrote, in either of its forms, as a safetensors
// header describes them: each lies in the file as it is, and two names of one tensor have the same
// place. In the order of the state dict; what is no tensor is left out. Errors of torch_file.h;
// DS_ERROR_UNSUPPORTED, naming the tensor, for one that is compressed in the archive;
// DS_ERROR_CORRUPT for a file without tensors by name.
SafetensorHeader read_torch_weights(const std::string& path);

}  // namespace ds
