#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/dtype.h"
#include "io/file.h"
#include "io/gguf.h"
#include "io/gguf_types.h"

namespace ds {

// A reader of the elements of a GGUF file's tensors, as f32.
class GgufData {
 public:
  explicit GgufData(const std::string& path) : file_(path, File::Mode::read) {}

  // Reads elements [begin, begin + count) of a tensor, which need not be whole blocks. Throws
  // DS_ERROR_CORRUPT, naming the tensor, if codes have a scale that is not finite.
  void read(const GgufTensor& tensor, int64_t begin, int64_t count, float* out);
  // Reads a whole tensor.
  std::vector<float> all(const GgufTensor& tensor);

 private:
  File file_;
  std::vector<std::byte> bytes_;
  std::vector<float> values_;
};

int64_t elements_of(const std::vector<int64_t>& shape);
std::string shown_shape(const std::vector<int64_t>& extents);

// Returns the type of a model folder that loses nothing of f32, f16 and bf16; bf16 for codes.
DType folder_dtype(const GgufType& type);

}  // namespace ds
