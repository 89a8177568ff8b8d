// Learned position embeddings: row r of a batch is at position r mod seq of its sequence.
#include <cstdint>

#include "kernels/ref/ref.h"

namespace ds::ref {
namespace {

// y[r] = x[r] + w[r mod seq]. The table may have more rows than seq.
template <typename T>
void position(const KernelContext& c) {
  const T *x = c.in[0].as<T>(), *w = c.in[1].as<T>();
  T* y = c.out[0].as<T>();
  int64_t rows = c.in[0].dims[0], width = c.in[0].dims[1], seq = c.attrs.integer("seq");
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t k = 0; k < width; ++k) {
      y[r * width + k] = static_cast<T>(get(x, r * width + k) + get(w, r % seq * width + k));
    }
  }
}

// dw[p] = the sum of dy[r] over rows r with r mod seq = p, in row order.
template <typename T>
void position_dw(const KernelContext& c) {
  const T* dy = c.in[0].as<T>();
  T* dw = c.out[0].as<T>();
  int64_t rows = c.in[0].dims[0], width = c.in[0].dims[1], seq = c.attrs.integer("seq");
  for (int64_t p = 0; p < c.out[0].dims[0]; ++p) {
    for (int64_t k = 0; k < width; ++k) {
      Wide<T> sum = 0;
      for (int64_t r = p; p < seq && r < rows; r += seq) sum += get(dy, r * width + k);
      dw[p * width + k] = static_cast<T>(sum);
    }
  }
}

}  // namespace

void add_position(KernelRegistry& registry) {
  add_by_type(registry, "position", []<typename T>() { return position<T>; });
  add_by_type(registry, "position_dw", []<typename T>() { return position_dw<T>; });
}

}  // namespace ds::ref
