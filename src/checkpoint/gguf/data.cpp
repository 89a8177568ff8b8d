#include "checkpoint/gguf/data.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <span>

#include "core/base/error.h"
#include "core/base/shape.h"

namespace ds {
namespace {

// Elements that are expanded at a time; a multiple of every block.
constexpr int64_t kExpandBlock = 1 << 14;

void check_codes(const GgufTensor& tensor, int64_t first, std::span<const float> values) {
  if (tensor.type->block == 1) return;
  const auto bad = std::ranges::find_if(values, [](float v) { return !std::isfinite(v); });
  if (bad == values.end()) return;
  const int64_t element = first + (bad - values.begin());
  raise(DS_ERROR_CORRUPT, "{}: tensor '{}': element {} is {}, because the scale of its block is",
        tensor.type->name, TensorName(tensor.name), element, *bad);
}

}  // namespace

void GgufData::read(const GgufTensor& tensor, int64_t begin, int64_t count, float* out) {
  const GgufType& type = *tensor.type;
  for (int64_t at = begin, end = begin + count; at < end;) {
    const int64_t first = at / type.block * type.block;
    const int64_t last =
        std::min((end + type.block - 1) / type.block * type.block, first + kExpandBlock);
    const int64_t bytes = gguf_bytes(type, last - first);
    bytes_.resize(static_cast<size_t>(bytes));
    values_.resize(static_cast<size_t>(last - first));
    file_.read(bytes_.data(), bytes_.size(), tensor.begin + gguf_bytes(type, first));
    expand_gguf(type, bytes_.data(), last - first, values_.data());
    check_codes(tensor, first, values_);
    const int64_t stop = std::min(end, last);
    out = std::copy(values_.data() + (at - first), values_.data() + (stop - first), out);
    at = stop;
  }
}

std::vector<float> GgufData::all(const GgufTensor& tensor) {
  std::vector<float> out(static_cast<size_t>(elements_of(tensor.shape)));
  read(tensor, 0, std::ssize(out), out.data());
  return out;
}

int64_t elements_of(const std::vector<int64_t>& shape) {
  int64_t out = 1;
  for (int64_t extent : shape) out *= extent;
  return out;
}

std::string shown_shape(const std::vector<int64_t>& extents) {
  return Shape(std::vector<Dim>(extents.begin(), extents.end())).text();
}

DType folder_dtype(const GgufType& type) {
  return type.name == "F32" ? DS_DTYPE_F32 : type.name == "F16" ? DS_DTYPE_F16 : DS_DTYPE_BF16;
}

}  // namespace ds
