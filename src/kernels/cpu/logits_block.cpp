// The work of the fused head on one block of logits: the forward pass folds the block into the
// softmax of the rows, and the backward pass turns it into gradients.
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

void fold_block(const LogitsBlock& block, RowSoftmax<float>* stats, float* logits, float* spreads,
                ThreadTeam& team) {
  for_blocks(team, block.rows, rows_per_task(block.words),
             [=](int64_t begin, int64_t end) HWY_ATTR {
               for (int64_t r = begin; r < end; ++r) {
                 const float* row = block.data + r * block.ld;
                 const Softmax before = block.first == 0 ? kNoSoftmax : stats[r];
                 stats[r] = joined(before, row, block.words);
                 if (spreads) {
                   // If the maximum grew, each earlier word is farther from it by the difference.
                   float earlier = block.first == 0 ? 0
                                                    : spreads[r] + static_cast<float>(block.first) *
                                                                       (stats[r].top - before.top);
                   spreads[r] = earlier + spread_of(stats[r].top, row, block.words);
                 }
                 // Exactly one block has the target's word.
                 if (int64_t target = block.target(r); target >= 0) logits[r] = row[target];
               }
             });
}

// Writes the gradients over the logits that they are computed from. T is not larger than f32, so
// the gradients of a row never overwrite logits that have not been read.
template <typename T>
void gradients_of(const LogitsBlock& block, const RowSoftmax<float>* stats,
                  const RowLoss<float>& loss, const LossGradient<float>& dloss, ThreadTeam& team) {
  for_blocks(team, block.rows, rows_per_task(block.words),
             [=](int64_t begin, int64_t end) HWY_ATTR {
               for (int64_t r = begin; r < end; ++r) {
                 const float* row = block.data + r * block.ld;
                 T* out = reinterpret_cast<T*>(block.data + r * block.ld);
                 if (block.targets[r] < 0) {
                   std::fill(out, out + block.words, T(0.0f));
                 } else {
                   softmax_gradient(stats[r], loss, row, block.words, block.target(r),
                                    dloss.of_row(r), out);
                 }
               }
             });
}

void logit_gradients(const LogitsBlock& block, const RowSoftmax<float>* stats,
                     const RowLoss<float>& loss, const LossGradient<float>& dloss, DType dtype,
                     ThreadTeam& team) {
  by_type(dtype, [&](auto t) { gradients_of<decltype(t)>(block, stats, loss, dloss, team); });
}

}  // namespace ds::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ds::cpu {

HWY_EXPORT(fold_block);
HWY_EXPORT(logit_gradients);

void fold_block(const LogitsBlock& block, RowSoftmax<float>* stats, float* logits, float* spreads,
                ThreadTeam& team) {
  HWY_DYNAMIC_DISPATCH(fold_block)(block, stats, logits, spreads, team);
}

void logit_gradients(const LogitsBlock& block, const RowSoftmax<float>* stats,
                     const RowLoss<float>& loss, const LossGradient<float>& dloss, DType dtype,
                     ThreadTeam& team) {
  HWY_DYNAMIC_DISPATCH(logit_gradients)(block, stats, loss, dloss, dtype, team);
}

}  // namespace ds::cpu
#endif  // HWY_ONCE
