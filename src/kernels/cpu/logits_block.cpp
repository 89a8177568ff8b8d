#include "kernels/cpu/logits_block.h"

#include <algorithm>
#include <cmath>

#include "kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/logits_block.cpp"
#include <hwy/foreach_target.h>

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ds::cpu::HWY_NAMESPACE {

// One row of a block joins `most` and `state`; the order of its sum depends on the vector width.
HWY_INLINE void fold_row(const float* row, int64_t words, float& most, RowState& state) {
  const Lanes d;
  int64_t step = lanes(), whole = words / step * step, left = words - whole;
  Vec top = hn::Set(d, most);
  for (int64_t v = 0; v < whole; v += step) top = hn::Max(top, load(row + v));
  if (left > 0) top = hn::Max(top, load_part(row + whole, left, -INFINITY));
  float before = most;
  most = maximum(top);
  Vec shift = hn::Set(d, most), total = hn::Zero(d);
  for (int64_t v = 0; v < whole; v += step) {
    total = hn::Add(total, exp_negative(hn::Sub(load(row + v), shift)));
  }
  if (left > 0) {
    total = hn::Add(total, exp_negative(hn::Sub(load_part(row + whole, left, -INFINITY), shift)));
  }
  state.sum = state.sum * std::exp(before - most) + sum(total);
}

void fold_block(const LogitsBlock& block, float* largest, RowState* states, ThreadTeam& team) {
  for_blocks(team, block.rows, rows_per_task(block.words), [=](int64_t begin, int64_t end) HWY_ATTR {
    for (int64_t r = begin; r < end; ++r) {
      if (block.first == 0) {
        largest[r] = -INFINITY;
        states[r] = {0, 0};
      }
      const float* row = block.data + r * block.ld;
      fold_row(row, block.words, largest[r], states[r]);
      if (int64_t target = block.target(r); target >= 0) states[r].target = row[target];
    }
  });
}

template <typename T>
void gradients_of(const LogitsBlock& block, const float* lse, float scale, ThreadTeam& team) {
  for_blocks(team, block.rows, rows_per_task(block.words), [=](int64_t begin, int64_t end) HWY_ATTR {
    const Lanes d;
    for (int64_t r = begin; r < end; ++r) {
      const float* row = block.data + r * block.ld;
      T* out = reinterpret_cast<T*>(block.data + r * block.ld);
      if (block.targets[r] < 0) {
        std::fill(out, out + block.words, T(0.0f));
        continue;
      }
      int64_t target = block.target(r);
      float logit = target >= 0 ? row[target] : 0;
      Vec shift = hn::Set(d, lse[r]), factor = hn::Set(d, scale);
      auto softmax = [=](Vec v) HWY_ATTR { return hn::Mul(factor, exp_negative(hn::Sub(v, shift))); };
      map(0, block.words, out, softmax, row);  // a T is no longer than a float: never before what is read
      if (target >= 0) out[target] = T(scale * (std::exp(logit - lse[r]) - 1));
    }
  });
}

void logit_gradients(const LogitsBlock& block, const float* lse, float scale, DType dtype, ThreadTeam& team) {
  by_type(dtype, [&](auto t) { gradients_of<decltype(t)>(block, lse, scale, team); });
}

}  // namespace ds::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ds::cpu {

HWY_EXPORT(fold_block);
HWY_EXPORT(logit_gradients);

void fold_block(const LogitsBlock& block, float* largest, RowState* states, ThreadTeam& team) {
  HWY_DYNAMIC_DISPATCH(fold_block)(block, largest, states, team);
}

void logit_gradients(const LogitsBlock& block, const float* lse, float scale, DType dtype, ThreadTeam& team) {
  HWY_DYNAMIC_DISPATCH(logit_gradients)(block, lse, scale, dtype, team);
}

}  // namespace ds::cpu
#endif  // HWY_ONCE
