// The softmax of rows or its logarithm, over all columns or, in causal_softmax, over those that the
// row sees.
#include <algorithm>
#include <cmath>
#include <cstdint>

#include "kernels/formulas/row_softmax.h"
#include "kernels/ref/ref.h"

namespace ds::ref {
namespace {

// y = exp(x - top) / sum, or with `log` its logarithm, -(log(sum) + top - x).
template <typename T>
void softmax(const KernelContext& c) {
  const T* x = c.in[0].as<T>();
  T* y = c.out[0].as<T>();
  const bool log = c.attrs.integer_or("log", 0) != 0;
  int64_t rows = c.in[0].dims[0], width = c.in[0].dims[1];
  for (int64_t r = 0; r < rows; ++r, x += width, y += width) {
    const auto row = RowSoftmax<Wide<T>>::of(width, [&](int64_t v) { return get(x, v); });
    for (int64_t v = 0; v < width; ++v) {
      y[v] = static_cast<T>(log ? -row.loss(get(x, v)) : std::exp(get(x, v) - row.top) / row.sum());
    }
  }
}

// y[r] = the softmax over columns 0, ..., r mod seq of row r; the other columns are 0.
template <typename T>
void causal_softmax(const KernelContext& c) {
  const T* x = c.in[0].as<T>();
  T* y = c.out[0].as<T>();
  int64_t rows = c.in[0].dims[0], width = c.in[0].dims[1], seq = c.attrs.integer("seq");
  for (int64_t r = 0; r < rows; ++r, x += width, y += width) {
    // Row r is at position r mod seq of its sequence.
    int64_t seen = std::min(width, r % seq + 1);
    const auto row = RowSoftmax<Wide<T>>::of(seen, [&](int64_t v) { return get(x, v); });
    for (int64_t v = 0; v < width; ++v) {
      y[v] = static_cast<T>(v < seen ? std::exp(get(x, v) - row.top) / row.sum() : 0);
    }
  }
}

// dx = y (dy - sum of dy y), or dy - exp(y) sum of dy if y is a logarithm.
template <typename T>
void softmax_dx(const KernelContext& c) {
  const T *dy = c.in[0].as<T>(), *y = c.in[1].as<T>();
  T* dx = c.out[0].as<T>();
  const bool log = c.attrs.integer_or("log", 0) != 0;
  int64_t rows = c.in[0].dims[0], width = c.in[0].dims[1];
  for (int64_t r = 0; r < rows; ++r, dy += width, y += width, dx += width) {
    // Every element depends on all others through the row's sum.
    Wide<T> sum = 0;
    for (int64_t v = 0; v < width; ++v) sum += log ? get(dy, v) : get(dy, v) * get(y, v);
    for (int64_t v = 0; v < width; ++v) {
      dx[v] = static_cast<T>(log ? get(dy, v) - std::exp(get(y, v)) * sum
                                 : get(y, v) * (get(dy, v) - sum));
    }
  }
}

}  // namespace

void add_softmax(KernelRegistry& registry) {
  add_by_type(registry, "softmax", []<typename T>() { return softmax<T>; });
  add_by_type(registry, "causal_softmax", []<typename T>() { return causal_softmax<T>; });
  add_by_type(registry, "softmax_dx", []<typename T>() { return softmax_dx<T>; });
}

}  // namespace ds::ref
