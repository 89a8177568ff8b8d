// Access to numbers recorded from DeepSpeed and PyTorch.
#pragma once
#include <cstddef>
#include <string>
#include <vector>

#include "io/safetensors.h"

namespace ds::test {

// Returns the path of a file in the folder that the environment variable DS_SEMANTICS names or, if
// it is not set, in the repository's copy.
std::string semantics_path(const std::string& file);
// Returns the path of a file in tests/data, or in the folder that DS_TEST_DATA names.
std::string data_path(const std::string& file);

// The tensors of a recorded safetensors file.
class RecordedTensors {
 public:
  explicit RecordedTensors(const std::string& path)
      : path_(path), header_(read_safetensors_header(path)) {}
  const SafetensorEntry* find(const std::string& name) const { return header_.find(name); }
  std::vector<std::string> names() const;
  // Reads a tensor, converted to f32.
  std::vector<float> read(const std::string& name) const;
  // Reads a tensor of f32, f64 or i32, converted to double without loss.
  std::vector<double> numbers(const std::string& name) const;

 private:
  std::vector<std::byte> bytes_of(const std::string& name, DType& dtype) const;
  std::string path_;
  SafetensorHeader header_;
};

}  // namespace ds::test
