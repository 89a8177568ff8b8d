#include "kernels/cpu/logits_block.h"

#include <algorithm>

#include "kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/logits_block.cpp"
#include <hwy/foreach_target.h>

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/row_softmax-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ds::cpu::HWY_NAMESPACE {

void fold_block(const LogitsBlock& block, RowSoftmax<float>* stats, float* logits, ThreadTeam& team) {
  for_blocks(team, block.rows, rows_per_task(block.words), [=](int64_t begin, int64_t end) HWY_ATTR {
    for (int64_t r = begin; r < end; ++r) {
      const float* row = block.data + r * block.ld;
      stats[r] = joined(block.first == 0 ? kNoSoftmax : stats[r], row, block.words);
      if (int64_t target = block.target(r); target >= 0) logits[r] = row[target];
    }
  });
}

template <typename T>
void gradients_of(const LogitsBlock& block, const RowSoftmax<float>* stats, float scale, ThreadTeam& team) {
  for_blocks(team, block.rows, rows_per_task(block.words), [=](int64_t begin, int64_t end) HWY_ATTR {
    for (int64_t r = begin; r < end; ++r) {
      const float* row = block.data + r * block.ld;
      T* out = reinterpret_cast<T*>(block.data + r * block.ld);
      if (block.targets[r] < 0) {
        std::fill(out, out + block.words, T(0.0f));
      } else {
        softmax_gradient(stats[r], row, block.words, block.target(r), scale, out);
      }
    }
  });
}

void logit_gradients(const LogitsBlock& block, const RowSoftmax<float>* stats, float scale, DType dtype,
                     ThreadTeam& team) {
  by_type(dtype, [&](auto t) { gradients_of<decltype(t)>(block, stats, scale, team); });
}

}  // namespace ds::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ds::cpu {

HWY_EXPORT(fold_block);
HWY_EXPORT(logit_gradients);

void fold_block(const LogitsBlock& block, RowSoftmax<float>* stats, float* logits, ThreadTeam& team) {
  HWY_DYNAMIC_DISPATCH(fold_block)(block, stats, logits, team);
}

void logit_gradients(const LogitsBlock& block, const RowSoftmax<float>* stats, float scale, DType dtype,
                     ThreadTeam& team) {
  HWY_DYNAMIC_DISPATCH(logit_gradients)(block, stats, scale, dtype, team);
}

}  // namespace ds::cpu
#endif  // HWY_ONCE
