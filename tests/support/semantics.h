// Recorded numbers of DeepSpeed and PyTorch.
#pragma once
#include <cstddef>
#include <string>
#include <vector>

#include "io/safetensors.h"

namespace ds::test {

// The file of that name in the folder that the environment variable DS_SEMANTICS names, or in the
// copy of the repository.
std::string semantics_path(const std::string& file);
// The same of tests/data, for which DS_TEST_DATA may name another folder.
std::string data_path(const std::string& file);

// The tensors of a safetensors file.
class RecordedTensors {
 public:
  explicit RecordedTensors(const std::string& path)
      : path_(path), header_(read_safetensors_header(path)) {}
  const SafetensorEntry* find(const std::string& name) const { return header_.find(name); }
  std::vector<std::string> names() const;
  // As f32.
  std::vector<float> read(const std::string& name) const;
  // Of a tensor of f32, f64 or i32, exactly.
  std::vector<double> numbers(const std::string& name) const;

 private:
  std::vector<std::byte> bytes_of(const std::string& name, DType& dtype) const;
  std::string path_;
  SafetensorHeader header_;
};

}  // namespace ds::test
