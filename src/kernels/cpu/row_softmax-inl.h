// The softmax of rows of logits, for cross_entropy and the fused head, compiled once per
// instruction set. kernels/formulas/row_softmax.h explains why the largest term is left out of the
// sum.
#if defined(DS_KERNELS_CPU_ROW_SOFTMAX_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef DS_KERNELS_CPU_ROW_SOFTMAX_INL_H_
#undef DS_KERNELS_CPU_ROW_SOFTMAX_INL_H_
#else
#define DS_KERNELS_CPU_ROW_SOFTMAX_INL_H_
#endif

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "kernels/cpu/simd-inl.h"
#include "kernels/cpu/sum_rows-inl.h"
#include "kernels/formulas/row_loss.h"
#include "kernels/formulas/row_softmax.h"

HWY_BEFORE_NAMESPACE();
namespace ds::cpu::HWY_NAMESPACE {

using Softmax = RowSoftmax<float>;
// The softmax of no logits, from which joined() can start: its sum, 1 + rest, is 0.
constexpr Softmax kNoSoftmax{-INFINITY, -1};

// Returns the index of the first element that equals `value`, or `words` if no element does.
template <typename T>
HWY_INLINE int64_t place_of(float value, const T* row, int64_t words) {
  const Lanes d;
  int64_t v = 0, step = lanes();
  for (Vec wanted = hn::Set(d, value); v + step <= words; v += step) {
    if (!hn::AllFalse(d, hn::Eq(load(row + v), wanted))) break;
  }
  while (v < words && static_cast<float>(row[v]) != value) ++v;
  return v;
}

// Returns the softmax of a row after `words` more logits. The order of their sum depends on the
// vector width.
template <typename T>
HWY_INLINE Softmax joined(Softmax before, const T* row, int64_t words) {
  const Lanes d;
  int64_t step = lanes(), whole = words / step * step, left = words - whole;
  Vec most = hn::Set(d, before.top);
  for (int64_t v = 0; v < whole; v += step) most = hn::Max(most, load(row + v));
  if (left > 0) most = hn::Max(most, load_part(row + whole, left, -INFINITY));
  float top = maximum(most);
  bool grows = top > before.top;
  Vec shift = hn::Set(d, top), total = hn::Zero(d);
  // The row, which is in the cache, is read twice: first for the maximum, then for the terms
  // relative to it. A running maximum would need an additional exponential for every vector.
  auto term = [=](Vec x) HWY_ATTR { return exp_negative(hn::Sub(x, shift)); };
  auto add = [&](int64_t from, int64_t to) HWY_ATTR {
    for (int64_t v = from; v < to; v += step) total = hn::Add(total, term(load(row + v)));
  };
  // The sum leaves out the largest logit, if it is one of these words.
  int64_t largest = grows ? place_of(top, row, words) : words, at = largest / step * step;
  auto others = [&](Vec x) HWY_ATTR {
    auto left_out = hn::Eq(hn::Iota(d, 0), hn::Set(d, static_cast<float>(largest - at)));
    return hn::IfThenZeroElse(left_out, term(x));
  };
  add(0, std::min(at, whole));
  if (at < whole) {
    total = hn::Add(total, others(load(row + at)));
    add(at + step, whole);
  }
  if (left > 0) {
    Vec x = load_part(row + whole, left, -INFINITY);
    total = hn::Add(total, at == whole ? others(x) : term(x));
  }
  // If the maximum grew, the earlier sum, its largest term included, is rescaled. kNoSoftmax has
  // the sum 0 and the maximum -infinity, so it is not rescaled.
  float earlier = before.rest;
  if (grows) earlier = before.sum() == 0 ? 0 : before.sum() * std::exp(before.top - top);
  return {top, earlier + sum(total)};
}

// Returns the sum of top - logit over the words of a row, as RowLoss::value() needs it.
template <typename T>
HWY_INLINE float spread_of(float top, const T* row, int64_t words) {
  Vec shift = hn::Set(Lanes(), top);
  auto below = [=](Vec x) HWY_ATTR { return hn::Sub(shift, x); };
  return sum_of(words, below, row);
}

// out = scale p, and scale (p - 1) in column `target`, which is -1 if the target is not among these
// words. If the loss is not plain, out = scale times the gradient of the loss. `out` may overwrite
// `row` if T is not larger than X.
template <typename T, typename X>
HWY_INLINE void softmax_gradient(Softmax s, const RowLoss<float>& loss, const X* row, int64_t words,
                                 int64_t target, float scale, T* out) {
  const Lanes d;
  float logit = target >= 0 ? static_cast<float>(row[target]) : 0;
  Vec shift = hn::Set(d, s.top);
  if (loss.plain()) {
    Vec factor = hn::Set(d, scale / s.sum());
    auto p = [=](Vec v) HWY_ATTR { return hn::Mul(factor, exp_negative(hn::Sub(v, shift))); };
    map(0, words, out, p, row);
    if (target >= 0) out[target] = T(-scale * s.miss(logit));
    return;
  }
  Vec factor = hn::Set(d, scale * loss.growth(s) / s.sum()),
      share = hn::Set(d, scale * loss.share());
  auto slope = [=](Vec v)
                   HWY_ATTR { return hn::MulSub(factor, exp_negative(hn::Sub(v, shift)), share); };
  map(0, words, out, slope, row);
  if (target >= 0) out[target] = T(scale * loss.of_target(s, logit));
}

}  // namespace ds::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
