// Multiplies each row by its element in one column of the gates, which weights an expert's output.
// The gradient of the gates is 0 outside this column.
#include <cstdint>

#include "kernels/ref/ref.h"

namespace ds::ref {
namespace {

// y[r] = x[r] gates[r, column]
template <typename T>
void scale_rows(const KernelContext& c) {
  const T *x = c.in[0].as<T>(), *gates = c.in[1].as<T>();
  T* y = c.out[0].as<T>();
  int64_t rows = c.in[0].dims[0], width = c.in[0].dims[1], columns = c.in[1].dims[1];
  int64_t column = c.attrs.integer("column");
  for (int64_t r = 0; r < rows; ++r) {
    Wide<T> gate = get(gates, r * columns + column);
    for (int64_t k = 0; k < width; ++k)
      y[r * width + k] = static_cast<T>(get(x, r * width + k) * gate);
  }
}

// dgates[r, column] = the dot product of dy[r] and x[r]; other columns are 0.
template <typename T>
void scale_rows_dw(const KernelContext& c) {
  const T *dy = c.in[0].as<T>(), *x = c.in[1].as<T>();
  T* dgates = c.out[0].as<T>();
  int64_t rows = c.in[0].dims[0], width = c.in[0].dims[1], columns = c.out[0].dims[1];
  int64_t column = c.attrs.integer("column");
  for (int64_t r = 0; r < rows; ++r) {
    Wide<T> sum = 0;
    for (int64_t k = 0; k < width; ++k) sum += get(dy, r * width + k) * get(x, r * width + k);
    for (int64_t e = 0; e < columns; ++e)
      dgates[r * columns + e] = static_cast<T>(e == column ? sum : 0);
  }
}

}  // namespace

void add_scale_rows(KernelRegistry& registry) {
  add_by_type(registry, "scale_rows", []<typename T>() { return scale_rows<T>; });
  add_by_type(registry, "scale_rows_dw", []<typename T>() { return scale_rows_dw<T>; });
}

}  // namespace ds::ref
