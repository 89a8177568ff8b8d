// Multiplies rows by the gates of an expert. The forward pass is bit-identical to the reference;
// the gradient is a dot product, whose order depends on the vector width.
#include <algorithm>
#include <cstdint>

#include "kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/scale_rows.cpp"
#include <hwy/foreach_target.h>

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/simd-inl.h"
#include "kernels/cpu/sum_rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ds::cpu::HWY_NAMESPACE {

// y[r] = x[r] gates[r, column]
template <typename T>
void scale_rows(const KernelContext& c) {
  const T *x = c.in[0].as<T>(), *gates = c.in[1].as<T>() + c.attrs.integer("column");
  T* y = c.out[0].as<T>();
  int64_t width = c.in[0].dims[1], columns = c.in[1].dims[1];
  for_blocks(c.team, c.in[0].dims[0], rows_per_task(width),
             [=](int64_t begin, int64_t end) HWY_ATTR {
               for (int64_t r = begin; r < end; ++r) {
                 Vec gate = hn::Set(Lanes(), static_cast<float>(gates[r * columns]));
                 map(
                     0, width, y + r * width, [=](Vec v) HWY_ATTR { return hn::Mul(v, gate); },
                     x + r * width);
               }
             });
}

// dgates[r, column] = the dot product of dy[r] and x[r]; other columns are 0.
template <typename T>
void scale_rows_dw(const KernelContext& c) {
  const T *dy = c.in[0].as<T>(), *x = c.in[1].as<T>();
  T* dgates = c.out[0].as<T>();
  int64_t width = c.in[0].dims[1], columns = c.out[0].dims[1], column = c.attrs.integer("column");
  for_blocks(
      c.team, c.in[0].dims[0], rows_per_task(width), [=](int64_t begin, int64_t end) HWY_ATTR {
        for (int64_t r = begin; r < end; ++r) {
          std::fill_n(dgates + r * columns, columns, T(0.0f));
          auto product = [](Vec g, Vec v) HWY_ATTR { return hn::Mul(g, v); };
          dgates[r * columns + column] = T(sum_of(width, product, dy + r * width, x + r * width));
        }
      });
}

void add_scale_rows(KernelRegistry& registry) {
  add_by_type(registry, "scale_rows", []<typename T>() { return scale_rows<T>; });
  add_by_type(registry, "scale_rows_dw", []<typename T>() { return scale_rows_dw<T>; });
}

}  // namespace ds::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
