// Looks up rows of a table by id, and computes the gradient of the table.
#include <algorithm>
#include <cstdint>
#include <span>

#include "kernels/ref/ref.h"

namespace ds::ref {
namespace {

// y[r] = w[ids[r]]
template <typename T>
void embedding(const KernelContext& c) {
  const T* w = c.in[0].as<T>();
  const int32_t* ids = c.in[1].as<int32_t>();
  T* y = c.out[0].as<T>();
  int64_t rows = c.in[1].dims[0], width = c.in[0].dims[1];
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t k = 0; k < width; ++k) y[r * width + k] = w[ids[r] * width + k];
  }
}

// dw[v] = the sum of dy[r] over rows r with ids[r] = v, in row order. dw[padding] is 0.
template <typename T>
void embedding_dw(const KernelContext& c) {
  const T* dy = c.in[0].as<T>();
  const int32_t* ids = c.in[1].as<int32_t>();
  T* dw = c.out[0].as<T>();
  int64_t rows = c.in[0].dims[0], width = c.in[0].dims[1], words = c.out[0].dims[0];
  int64_t padding = c.attrs.integer_or("padding", -1);
  std::span<Wide<T>> sum = scratch_of<Wide<T>>(c, width);
  for (int64_t v = 0; v < words; ++v) {
    std::fill(sum.begin(), sum.end(), Wide<T>(0));
    for (int64_t r = 0; r < rows; ++r) {
      if (ids[r] != v || v == padding) continue;
      for (int64_t k = 0; k < width; ++k) sum[k] += get(dy, r * width + k);
    }
    for (int64_t k = 0; k < width; ++k) dw[v * width + k] = static_cast<T>(sum[k]);
  }
}

}  // namespace

void add_embedding(KernelRegistry& registry) {
  add_by_type(registry, "embedding", []<typename T>() { return embedding<T>; });
  add_by_type(registry, "embedding_dw", []<typename T>() { return embedding_dw<T>; });
}

}  // namespace ds::ref
