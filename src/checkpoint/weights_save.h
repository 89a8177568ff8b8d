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

// What a file of weights has beside the parameters that training knows, and how it is cut; for
// files that are like none.
struct WeightExtras {
  std::vector<SafetensorEntry> buffers;  // names, types and shapes; before the parameters
  std::function<void(size_t buffer, const std::function<void(std::span<const std::byte>)>& use)>
      read_buffer;
  // Second names, each with the name whose values it has; one whose first name is unknown is left
  // out.
  std::vector<std::pair<std::string, std::string>> tied;
  std::vector<ParamId> order;  // of all parameters; empty: by number
  // The most bytes of a file that has more than one tensor; second names do not count.
  int64_t file_bytes = std::numeric_limits<int64_t>::max();
};

// Masters to `folder`, which is made. With `like`, the folder they were loaded from: the same files
// with the same tensor names, dtypes and order, and its config and tokenizer files; without, or
// when that one has no weights: one model.safetensors, f32, tensors in the order of parameters, or
// several files with an index as the hub has them. For a `like` of torch's files, or one that lacks
// the model's head, the same is written as safetensors, with the head. Each file appears at once
// and whole (rename). Collective: if one rank fails, every rank throws its error.
void save_weights(StateAccess& state, const std::string& folder, const std::string& like = "",
                  const WeightExtras& extras = {});

}  // namespace ds
