#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint/state_access.h"
#include "core/graph/graph.h"
#include "io/safetensors.h"

namespace ds {

// The contents of a weights file besides the trained parameters, and how the tensors are divided
// into files. Used only if the files do not follow those of another folder.
struct WeightExtras {
  // Names, types and shapes of the buffers, which are stored before the parameters.
  std::vector<SafetensorEntry> buffers;
  // Calls use() with the bytes of a buffer, block by block in order.
  std::function<void(size_t buffer, const std::function<void(std::span<const std::byte>)>& use)>
      read_buffer;
  // Second names, each with the name whose values it shares. One whose first name is unknown is
  // left out.
  std::vector<std::pair<std::string, std::string>> tied;
  // Order of all parameters; empty means the order of their numbers.
  std::vector<ParamId> order;
  // Most bytes in a file; a single tensor larger than this has a file of its own. Second names do
  // not count.
  int64_t file_bytes = std::numeric_limits<int64_t>::max();
};

// Saves the masters to `folder`, which is created. If `like` is given, the folder that they were
// loaded from, the new files have the same names, tensor names, dtypes and order, and its config
// and tokenizer files are copied. Without it, or if it has no weights, writes one f32
// model.safetensors with the tensors in the order of parameters, or several files with an index as
// on the Hugging Face hub. If `like` has torch files, or lacks the model's head, safetensors files
// that include the head replace those. Each file is written under a temporary name and renamed, so
// it never appears incomplete. Collective: if one rank fails, every rank throws its error.
void save_weights(StateAccess& state, const std::string& folder, const std::string& like = "",
                  const WeightExtras& extras = {});

}  // namespace ds
