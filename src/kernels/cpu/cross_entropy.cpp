#include <algorithm>
#include <cmath>

#include "kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/cross_entropy.cpp"
#include <hwy/foreach_target.h>

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ds::cpu::HWY_NAMESPACE {

// log sum exp of one row; the order of the sum depends on the vector width
template <typename T>
HWY_INLINE float log_sum_exp(const T* row, int64_t width) {
  const Lanes d;
  int64_t step = lanes(), whole = width / step * step, left = width - whole;
  Vec top = hn::Set(d, -INFINITY);
  for (int64_t v = 0; v < whole; v += step) top = hn::Max(top, load(row + v));
  if (left > 0) top = hn::Max(top, load_part(row + whole, left, -INFINITY));
  float most = maximum(top);
  Vec shift = hn::Set(d, most), total = hn::Zero(d);
  for (int64_t v = 0; v < whole; v += step) {
    total = hn::Add(total, exp_negative(hn::Sub(load(row + v), shift)));
  }
  if (left > 0) {
    total = hn::Add(total, exp_negative(hn::Sub(load_part(row + whole, left, -INFINITY), shift)));
  }
  return most + std::log(sum(total));
}

// lse[r] = log sum exp(logits[r]); loss = mean of lse - logit[target] over rows with target >= 0, the terms
// added in row order in f64
template <typename T>
void cross_entropy_of(const KernelContext& c) {
  const T* logits = c.in[0].as<T>();
  const int32_t* targets = c.in[1].as<int32_t>();
  float* lse = c.out[1].as<float>();
  int64_t rows = c.in[0].dims[0], width = c.in[0].dims[1], counted = 0;
  for_blocks(c.team, rows, rows_per_task(width), [=](int64_t begin, int64_t end) HWY_ATTR {
    for (int64_t r = begin; r < end; ++r) lse[r] = log_sum_exp(logits + r * width, width);
  });
  double total = 0;
  for (int64_t r = 0; r < rows; ++r) {
    if (targets[r] < 0) continue;
    total += static_cast<double>(lse[r] - static_cast<float>(logits[r * width + targets[r]]));
    ++counted;
  }
  c.out[0].as<float>()[0] = static_cast<float>(counted == 0 ? 0.0 : total / static_cast<double>(counted));
}

void cross_entropy(const KernelContext& c) {
  by_type(c.in[0].dtype, [&](auto t) { cross_entropy_of<decltype(t)>(c); });
}

// dlogits = dloss / counted (softmax - onehot(target)); rows without a target are 0
template <typename T>
void cross_entropy_dx_of(const KernelContext& c) {
  const T* logits = c.in[1].as<T>();
  const int32_t* targets = c.in[2].as<int32_t>();
  const float* lse = c.in[3].as<float>();
  T* dx = c.out[0].as<T>();
  int64_t rows = c.in[1].dims[0], width = c.in[1].dims[1];
  int64_t counted = std::count_if(targets, targets + rows, [](int32_t target) { return target >= 0; });
  float scale = counted == 0 ? 0 : c.in[0].as<float>()[0] / static_cast<float>(counted);
  for_blocks(c.team, rows, rows_per_task(width), [=](int64_t begin, int64_t end) HWY_ATTR {
    const Lanes d;
    for (int64_t r = begin; r < end; ++r) {
      const T* row = logits + r * width;
      T* out = dx + r * width;
      if (targets[r] < 0) {
        std::fill(out, out + width, T(0.0f));
        continue;
      }
      Vec shift = hn::Set(d, lse[r]), factor = hn::Set(d, scale);
      auto softmax = [=](Vec v) HWY_ATTR { return hn::Mul(factor, exp_negative(hn::Sub(v, shift))); };
      map(0, width, out, softmax, row);
      float p = std::exp(static_cast<float>(row[targets[r]]) - lse[r]);
      out[targets[r]] = T(scale * (p - 1));
    }
  });
}

void cross_entropy_dx(const KernelContext& c) {
  by_type(c.in[1].dtype, [&](auto t) { cross_entropy_dx_of<decltype(t)>(c); });
}

}  // namespace ds::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ds::cpu {

HWY_EXPORT(cross_entropy);
HWY_EXPORT(cross_entropy_dx);

void add_cross_entropy(KernelRegistry& registry) {
  add_kernel(registry, "cross_entropy", [](const KernelContext& c) {
    HWY_DYNAMIC_DISPATCH(cross_entropy)(c);
  });
  add_kernel(registry, "cross_entropy_dx", [](const KernelContext& c) {
    HWY_DYNAMIC_DISPATCH(cross_entropy_dx)(c);
  });
}

}  // namespace ds::cpu
#endif  // HWY_ONCE
