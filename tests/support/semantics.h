// Recorded numbers of DeepSpeed and PyTorch.
#pragma once
#include <string>
#include <vector>

#include "io/safetensors.h"

namespace ds::test {

// The file of that name in the folder that the environment variable DS_SEMANTICS names, or in the copy of the
// repository.
std::string semantics_path(const std::string& file);

// The tensors of a safetensors file, as f32.
class RecordedTensors {
 public:
  explicit RecordedTensors(const std::string& path) : path_(path), header_(read_safetensors_header(path)) {}
  const SafetensorEntry* find(const std::string& name) const { return header_.find(name); }
  std::vector<float> read(const std::string& name) const;

 private:
  std::string path_;
  SafetensorHeader header_;
};

}  // namespace ds::test
