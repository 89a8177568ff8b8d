#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "core/graph/graph.h"
#include "io/safetensors.h"
#include "io/tensor_folder.h"

namespace ds {

// A stored tensor and the parameter that it holds, or none for a constant that training does not change.
struct WeightSource {
  size_t file = 0;
  size_t entry = 0;  // in the file's header
  ParamId param;
};

// Which tensor of a model folder is which parameter, and all checks that need no data. Throws
// DS_ERROR_CONFIG for a missing or surplus tensor, two for one parameter (unless one of them has the other
// name of a tied tensor), another dtype than f32, f16 and bf16, or another shape.
struct WeightMatch {
  TensorFolder folder;
  std::vector<WeightSource> sources;   // every stored tensor, in the order of files
  IdVector<ParamId, size_t> of_param;  // the source to read
  std::vector<size_t> copies;          // sources that repeat a tied tensor

  const SafetensorEntry& entry(const WeightSource& s) const {
    return folder.files[s.file].header.entries[s.entry];
  }
};

// The model's parameters by name and shape.
WeightMatch match_weights(const IdVector<ParamId, std::string>& names,
                          const IdVector<ParamId, std::vector<int64_t>>& shapes, const std::string& path);

}  // namespace ds
