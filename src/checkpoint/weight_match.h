#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "core/graph/graph.h"
#include "io/file.h"
#include "io/safetensors.h"
#include "io/tensor_folder.h"

namespace ds {

// A stored tensor and the parameter that it holds. `param` does not exist if the tensor is not a
// parameter of the model.
struct WeightSource {
  size_t file = 0;
  // Index of the entry in the file's header.
  size_t entry = 0;
  ParamId param;
};

// The assignment of the tensors of a model folder to the parameters of a model, as match_weights()
// returns it.
struct WeightMatch {
  TensorFolder folder;
  // All stored tensors, in the order of files.
  std::vector<WeightSource> sources;
  // The index of the source that each parameter is read from, or kNone for a parameter of the head
  // that is not stored.
  IdVector<ParamId, size_t> of_param;
  // Indices of sources that store a tied tensor a second time.
  std::vector<size_t> copies;
  // Names of stored tensors that are not parameters of the model, without those that are ignored.
  std::vector<std::string> surplus;
  // Names of parameters that are not stored, which keep their random initial values.
  std::vector<std::string> drawn;

  static constexpr size_t kNone = static_cast<size_t>(-1);
  // Returns a warning that lists surplus and drawn names, or "" if both lists are empty.
  std::string warning() const;

  const SafetensorEntry& entry(const WeightSource& s) const {
    return folder.files[s.file].header.entries[s.entry];
  }
};

// Assigns the tensors in the folder `path` to the model's parameters, given by name and shape, and
// makes all checks that need no data. The folder may lack the model's head, as the folder of a base
// model does, and may have tensors that are not parameters of the model. It has no parameters of
// adapters. Throws DS_ERROR_CONFIG if any other tensor is missing, if two tensors are the same
// parameter (unless one of them has the other name of a tied tensor), if a dtype is not f32, f16 or
// bf16, or if a shape differs.
WeightMatch match_weights(const IdVector<ParamId, std::string>& names,
                          const IdVector<ParamId, std::vector<int64_t>>& shapes,
                          const std::string& path);

// Throws DS_ERROR_CONFIG, naming the file `path` and the tensor, unless the stored tensor has this
// shape and is f32, f16 or bf16.
void check_stored(const SafetensorEntry& stored, const std::string& path,
                  const std::vector<int64_t>& wanted);

// Returns whether source number `copy` has the same dtype and bytes as the source that its
// parameter is read from. `files` are the open files of the folder, as open_files() returns them.
bool is_equal_copy(const WeightMatch& match, size_t copy, const std::vector<File>& files);
std::vector<File> open_files(const TensorFolder& folder);

}  // namespace ds
