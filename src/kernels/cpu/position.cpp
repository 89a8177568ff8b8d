// Learned position embeddings and their gradient, bit-identical to the reference: a task computes
// the whole sum of each of its positions, so each sum is in row order.
#include <algorithm>
#include <cstdint>

#include "kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/position.cpp"
#include <hwy/foreach_target.h>

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ds::cpu::HWY_NAMESPACE {

// y[r] = x[r] + w[r mod seq]
template <typename T>
void position(const KernelContext& c) {
  const T *x = c.in[0].as<T>(), *w = c.in[1].as<T>();
  T* y = c.out[0].as<T>();
  int64_t width = c.in[0].dims[1], seq = c.attrs.integer("seq");
  for_blocks(c.team, c.in[0].dims[0], rows_per_task(width),
             [=](int64_t begin, int64_t end) HWY_ATTR {
               for (int64_t r = begin; r < end; ++r) {
                 map(
                     0, width, y + r * width, [](Vec a, Vec b) HWY_ATTR { return hn::Add(a, b); },
                     x + r * width, w + r % seq * width);
               }
             });
}

// dw[p] = the sum of dy[r] over rows r with r mod seq = p, in row order. Rows of dw from seq on are
// 0.
template <typename T>
void position_dw(const KernelContext& c) {
  const T* dy = c.in[0].as<T>();
  T* dw = c.out[0].as<T>();
  int64_t rows = c.in[0].dims[0], width = c.in[0].dims[1], seq = c.attrs.integer("seq");
  for_blocks(c.team, c.out[0].dims[0], std::max<int64_t>(1, 1024 / width),
             [=](int64_t begin, int64_t end) HWY_ATTR {
               int64_t step = lanes();
               for (int64_t p = begin; p < end; ++p) {
                 for (int64_t k = 0; k < width; k += step) {
                   int64_t left = std::min(step, width - k);
                   Vec total = hn::Zero(Lanes());
                   // The rows at this position of all sequences, in order.
                   for (int64_t r = p; p < seq && r < rows; r += seq) {
                     const T* at = dy + r * width + k;
                     total = hn::Add(total, left == step ? load(at) : load_part(at, left));
                   }
                   store_part(total, dw + p * width + k, left);
                 }
               }
             });
}

void add_position(KernelRegistry& registry) {
  add_by_type(registry, "position", []<typename T>() { return position<T>; });
  add_by_type(registry, "position_dw", []<typename T>() { return position_dw<T>; });
}

}  // namespace ds::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
