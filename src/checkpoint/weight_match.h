#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "core/graph/graph.h"
#include "io/file.h"
#include "io/safetensors.h"
#include "io/tensor_folder.h"

namespace ds {

// A stored tensor and the parameter that it holds, or none for a constant that training does not
// change.
struct WeightSource {
  size_t file = 0;
  size_t entry = 0;  // in the file's header
  ParamId param;
};

// Which tensor of a model folder is which parameter, and all checks that need no data. A folder may
// lack the model's head, as that of a base model does, and have tensors that the model has no
// parameter for. Throws DS_ERROR_CONFIG for another missing tensor, two for one parameter (unless
// one of them has the other name of a tied tensor), another dtype than f32, f16 and bf16, or
// another shape.
struct WeightMatch {
  TensorFolder folder;
  std::vector<WeightSource> sources;   // every stored tensor, in the order of files
  IdVector<ParamId, size_t> of_param;  // the source to read; kNone: of the head, which is not there
  std::vector<size_t> copies;          // sources that repeat a tied tensor
  std::vector<std::string> surplus;    // stored tensors that are no parameter
  std::vector<std::string> drawn;      // parameters that are not stored

  static constexpr size_t kNone = static_cast<size_t>(-1);
  // Surplus and drawn names in words; "": none.
  std::string warning() const;

  const SafetensorEntry& entry(const WeightSource& s) const {
    return folder.files[s.file].header.entries[s.entry];
  }
};

// The model's parameters by name and shape.
WeightMatch match_weights(const IdVector<ParamId, std::string>& names,
                          const IdVector<ParamId, std::vector<int64_t>>& shapes,
                          const std::string& path);

// Whether a source has the bytes of the one that its parameter is read from. `files`: the folder's,
// open.
bool is_equal_copy(const WeightMatch& match, size_t copy, const std::vector<File>& files);
std::vector<File> open_files(const TensorFolder& folder);

}  // namespace ds
