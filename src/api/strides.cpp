// This file handles the layouts of tensors: strides, copies between layouts, and compact copies.
#include "api/strides.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/base/dtype.h"
#include "core/base/error.h"
#include "core/base/shape.h"
#include "core/device/stream.h"

namespace ds {

std::string dims_text(std::span<const int64_t> dims) {
  return Shape(std::vector<Dim>(dims.begin(), dims.end())).text();
}

std::vector<int64_t> compact_strides(std::span<const int64_t> dims) {
  std::vector<int64_t> out(dims.size());
  int64_t elements = 1;
  for (size_t i = dims.size(); i-- > 0;) {
    out[i] = elements;
    // The product overflows only for an empty tensor, whose strides are not used.
    if (__builtin_mul_overflow(elements, dims[i], &elements)) elements = 0;
  }
  return out;
}

// The stride of a dimension of size 1 is never used, so it may have any value.
bool is_compact(const ds_tensor& tensor) {
  if (tensor.numel == 0) return true;
  std::vector<int64_t> compact = compact_strides(tensor.dims);
  for (size_t i = 0; i < compact.size(); ++i) {
    if (tensor.dims[i] != 1 && tensor.strides[i] != compact[i]) return false;
  }
  return true;
}

// In the layouts that slicing and transposing make, each stride is at least the extent of all
// dimensions with smaller strides. In another layout the places of all elements are compared.
bool shares_places(const ds_tensor& tensor) {
  std::vector<std::pair<int64_t, int64_t>> dims;
  for (size_t i = 0; i < tensor.dims.size(); ++i) {
    if (tensor.dims[i] > 1) dims.emplace_back(std::abs(tensor.strides[i]), tensor.dims[i]);
  }
  std::ranges::sort(dims);
  int64_t extent = 1;
  bool nested = true;
  for (const auto& [stride, size] : dims) {
    nested = nested && stride >= extent;
    extent += (size - 1) * stride;
  }
  if (nested || tensor.numel == 0) return false;
  if (tensor.numel > extent) return true;
  std::vector<int64_t> places{0};
  places.reserve(static_cast<size_t>(tensor.numel));
  for (const auto& [stride, size] : dims) {
    const size_t inner = places.size();
    for (int64_t k = 1; k < size; ++k) {
      for (size_t i = 0; i < inner; ++i) places.push_back(places[i] + k * stride);
    }
  }
  std::ranges::sort(places);
  return std::ranges::adjacent_find(places) != places.end();
}

// The last dimensions that are compact in both tensors form one run of elements. The loop advances
// through the other dimensions like an odometer.
void copy_runs(const ds_tensor& to, const ds_tensor& from,
               const std::function<void(void* to, const void* from, size_t bytes)>& run) {
  if (to.numel == 0) return;
  int64_t elements = 1;
  size_t outer = to.dims.size();
  for (; outer > 0; --outer) {
    size_t d = outer - 1;
    if (to.dims[d] == 1) continue;
    if (to.strides[d] != elements || from.strides[d] != elements) break;
    elements *= to.dims[d];
  }
  int64_t unit = size_of(to.dtype);
  auto* target = static_cast<std::byte*>(to.data);
  const auto* source = static_cast<const std::byte*>(from.data);
  // When a dimension wraps around, the pointers move back by its whole extent, and the next outer
  // dimension advances.
  std::vector<int64_t> index(outer, 0);
  for (;;) {
    run(target, source, static_cast<size_t>(elements * unit));
    size_t d = outer;
    for (;;) {
      if (d-- == 0) return;
      target += to.strides[d] * unit;
      source += from.strides[d] * unit;
      if (++index[d] < to.dims[d]) break;
      target -= to.strides[d] * unit * to.dims[d];
      source -= from.strides[d] * unit * to.dims[d];
      index[d] = 0;
    }
  }
}

CompactTensor::CompactTensor(const ds_tensor& given, const StreamRef& stream,
                             const std::string& argument)
    : given_(given) {
  if (is_compact(given)) return;
  if (given.device) {
    raise(DS_ERROR_INVALID_ARGUMENT,
          "{} must be compact row-major on device '{}': ds_tensor_copy makes such a copy", argument,
          given.device->name());
  }
  // Work in the stream may still be writing the tensor.
  if (stream) stream->synchronize();
  copy_ = own_tensor(given.dtype, given.dims);
  copy_runs(*copy_, given,
            [](void* to, const void* from, size_t bytes) { std::memcpy(to, from, bytes); });
}

}  // namespace ds
