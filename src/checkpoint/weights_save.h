#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint/state_access.h"
#include "core/base/dtype.h"
#include "core/graph/graph.h"
#include "io/safetensors.h"
#include "io/tensor_folder.h"

namespace ds {

// The contents of a weights file other than the trained parameters, and how the tensors are divided
// into files. Used only if the files do not follow those of another folder.
struct WeightExtras {
  // Names, types and shapes of the buffers, which are stored before the parameters.
  std::vector<SafetensorEntry> buffers;
  // Calls use() with the bytes of a buffer, block by block in order.
  std::function<void(size_t buffer, const std::function<void(std::span<const std::byte>)>& use)>
      read_buffer;
  // Second names, each with the first name of the same values. A second name is left out if no
  // tensor has its first name.
  std::vector<std::pair<std::string, std::string>> tied;
  // The parameters to store, in their order. If it is empty, all are stored by number.
  std::vector<ParamId> order;
  // The type of the parameters in files that do not follow those of another folder: f32, bf16 or
  // f16. Nothing means that which loses nothing of a GGUF file `like`, and otherwise f32.
  std::optional<DType> dtype = {};
  // Returns the name under which a parameter is stored. Empty: its own name.
  std::function<std::string(const std::string& param)> stored_name = {};
  // The name of a single file of tensors.
  std::string file = std::string(kTensorFile);
  // The largest number of tensor bytes in a file, without the header and second names. A larger
  // tensor gets a file of its own.
  int64_t file_bytes = std::numeric_limits<int64_t>::max();
};

// Saves the masters to `folder`, which is created. `like` is the folder that the weights were
// loaded from, or "". If `like` has weights, the new files have the same names, tensor names,
// dtypes and order. If these are torch files, or lack the model's head, the new files are
// safetensors files that include the head. If `like` is "" or has no weights, writes one
// model.safetensors of extras.dtype with the tensors in the order of parameters, or several files
// with an index as on the Hugging Face hub. The config and tokenizer files of `like` are copied.
// `like` may also be a GGUF file, of whose metadata these files are made. Each file is written
// under a temporary name and renamed, so it never appears incomplete. Collective: if one rank
// fails, every rank throws its error.
void save_weights(StateAccess& state, const std::string& folder, const std::string& like = "",
                  const WeightExtras& extras = {});

}  // namespace ds
