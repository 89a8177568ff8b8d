// The softmax of rows and its gradient.
#include <algorithm>
#include <cmath>
#include <cstdint>

#include "kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/softmax.cpp"
#include <hwy/foreach_target.h>

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/row_softmax-inl.h"
#include "kernels/cpu/simd-inl.h"
#include "kernels/cpu/sum_rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ds::cpu::HWY_NAMESPACE {

// y = exp(x - top) / sum over all columns or, with attribute `seq`, over columns 0, ..., r mod seq,
// and 0 in the others. With `log`, y = (x - top) - log(sum).
template <typename T>
void softmax(const KernelContext& c) {
  const T* x = c.in[0].as<T>();
  T* y = c.out[0].as<T>();
  const bool log = c.attrs.integer_or("log", 0) != 0;
  int64_t width = c.in[0].dims[1], seq = c.attrs.integer_or("seq", 0);
  for_blocks(
      c.team, c.in[0].dims[0], rows_per_task(width), [=](int64_t begin, int64_t end) HWY_ATTR {
        const Lanes d;
        for (int64_t r = begin; r < end; ++r) {
          const T* row = x + r * width;
          T* out = y + r * width;
          int64_t seen = seq == 0 ? width : std::min(width, r % seq + 1);
          // Columns that the row does not see are left out.
          Softmax s = joined(kNoSoftmax, row, seen);
          Vec shift = hn::Set(d, s.top);
          if (log) {
            Vec of_sum = hn::Set(d, std::log1p(s.rest));
            auto logarithm = [=](Vec v) HWY_ATTR { return hn::Sub(hn::Sub(v, shift), of_sum); };
            map(0, seen, out, logarithm, row);
          } else {
            Vec factor = hn::Set(d, 1 / s.sum());
            auto p = [=](Vec v)
                         HWY_ATTR { return hn::Mul(factor, exp_negative(hn::Sub(v, shift))); };
            map(0, seen, out, p, row);
          }
          std::fill(out + seen, out + width, T(0.0f));
        }
      });
}

// dx = y (dy - sum of dy y), or dy - exp(y) sum of dy if y is a logarithm.
template <typename T>
void softmax_dx(const KernelContext& c) {
  const T *dy = c.in[0].as<T>(), *y = c.in[1].as<T>();
  T* dx = c.out[0].as<T>();
  const bool log = c.attrs.integer_or("log", 0) != 0;
  int64_t width = c.in[0].dims[1];
  for_blocks(
      c.team, c.in[0].dims[0], rows_per_task(width), [=](int64_t begin, int64_t end) HWY_ATTR {
        const Lanes d;
        for (int64_t r = begin; r < end; ++r) {
          const T *gradient = dy + r * width, *row = y + r * width;
          T* out = dx + r * width;
          if (log) {
            auto same = [](Vec g) HWY_ATTR { return g; };
            Vec total = hn::Set(d, sum_of(width, same, gradient));
            auto slope = [=](Vec g, Vec v)
                             HWY_ATTR { return hn::NegMulAdd(exp_negative(v), total, g); };
            map(0, width, out, slope, gradient, row);
          } else {
            auto product = [](Vec g, Vec v) HWY_ATTR { return hn::Mul(g, v); };
            Vec total = hn::Set(d, sum_of(width, product, gradient, row));
            auto slope = [=](Vec g, Vec v) HWY_ATTR { return hn::Mul(v, hn::Sub(g, total)); };
            map(0, width, out, slope, gradient, row);
          }
        }
      });
}

void add_softmax(KernelRegistry& registry) {
  for (const char* op : {"softmax", "causal_softmax"})
    add_by_type(registry, op, []<typename T>() { return softmax<T>; });
  add_by_type(registry, "softmax_dx", []<typename T>() { return softmax_dx<T>; });
}

}  // namespace ds::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
