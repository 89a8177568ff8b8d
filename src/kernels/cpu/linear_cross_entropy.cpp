// The fused head around the products of any family. Logits are stored in f32 for one block of words
// at a time. The forward pass folds each block into the softmax of the rows. The backward pass
// recomputes each block, turns it into gradients in place, and computes dw and dx from products
// with these gradients. dx is summed in f32 over blocks.
#include "kernels/cpu/linear_cross_entropy.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/logits_block.h"
#include "kernels/cpu/row_losses.h"
#include "kernels/formulas/logits_head.h"
#include "kernels/formulas/row_loss.h"
#include "kernels/formulas/row_softmax.h"

namespace ds::cpu {
namespace {

// The number of rows in a task that computes only their losses, which takes a few microseconds.
constexpr int64_t kRowsOfTask = 256;

// The fused head with the shapes of the products that CPU kernels run for it.
struct Head : LogitsHead {
  using LogitsHead::LogitsHead;

  // Returns the distance between rows of gradients, in elements of the dtype. Gradients replace the
  // f32 logits in memory.
  int64_t gradient_ld() const { return block * size_of(DS_DTYPE_F32) / size_of(dtype); }

  MatrixShape dw_shape(int64_t first) const {
    return {count(first), width, rows, gradient_ld(), width, width, true, false, false, dtype};
  }
  MatrixShape dx_shape(int64_t first) const {
    return {rows,  width, count(first), gradient_ld(), width,       width,
            false, false, false,        dtype,         Store::added};
  }
  LogitsBlock at(int64_t first, const int32_t* targets) const {
    return {logits, rows, count(first), block, first, targets};
  }
};

Head head_of(const KernelContext& c) { return {c.in[0], c.in[1], c.out[2]}; }
Head head_of_dx(const KernelContext& c) { return {c.in[1], c.in[2], c.out[2]}; }

// Returns the f32 sums of dx: a separate result or, if dx is f32, dx itself.
float* sums_of(const KernelContext& c) { return c.out[c.out.size() > 3 ? 3 : 0].as<float>(); }

// Calls f with the first word of the first block and, if the last block is smaller, of the last
// block. All other blocks have the shape of the first.
template <typename F>
void for_edges(const Head& head, const F& f) {
  f(0);
  int64_t last = (head.words - 1) / head.block * head.block;
  if (head.count(last) != head.block) f(last);
}

}  // namespace

void linear_cross_entropy(const KernelContext& c, Multiply multiply) {
  const Head head = head_of(c);
  const int32_t* targets = c.in[2].as<int32_t>();
  auto* stats = c.out[1].as<RowSoftmax<float>>();
  float* logits = c.out[3].as<float>();
  // The spreads of the rows; null without label_smoothing.
  float* spreads = c.out.size() > 4 ? c.out[4].as<float>() : nullptr;
  const auto loss = RowLoss<float>::of(c.attrs, head.words);
  for (int64_t first = 0; first < head.words; first += head.block) {
    multiply(head.product(first), c.team);
    fold_block(head.at(first, targets), stats, logits, spreads, c.team);
  }
  auto term = [=](int64_t r) {
    return targets[r] < 0 ? 0 : loss.value(stats[r], logits[r], spreads ? spreads[r] : 0);
  };
  std::span counted(targets, static_cast<size_t>(head.rows));
  reduce_losses(c.team, reduction_of(c.attrs), counted, kRowsOfTask, c.out[0].as<float>(), term);
}

void linear_cross_entropy_dx(const KernelContext& c, Multiply multiply) {
  const Head head = head_of_dx(c);
  const int32_t* targets = c.in[3].as<int32_t>();
  const auto* stats = c.in[4].as<RowSoftmax<float>>();
  float* sums = sums_of(c);
  const auto loss = RowLoss<float>::of(c.attrs, head.words);
  const auto dloss = LossGradient<float>::of(c.attrs, c.in[0].as<float>(), targets, head.rows);
  int64_t elements = head.rows * head.width;
  for_blocks(c.team, elements, kBlock,
             [=](int64_t begin, int64_t end) { std::fill(sums + begin, sums + end, 0.0f); });
  for (int64_t first = 0; first < head.words; first += head.block) {
    // Recompute the logits of this block, which the forward pass did not keep.
    multiply(head.product(first), c.team);
    logit_gradients(head.at(first, targets), stats, loss, dloss, head.dtype, c.team);
    // The block's rows of dw are one product, summed over all rows of x and rounded once.
    std::byte* dw = c.out[1].as<std::byte>() + head.weight_offset(first);
    multiply({head.dw_shape(first), head.logits, head.x, nullptr, dw}, c.team);
    multiply({head.dx_shape(first), head.logits, head.weight(first), nullptr, sums}, c.team);
  }
  if (head.dtype == DS_DTYPE_F32) return;
  by_type(head.dtype, [&](auto t) {
    using T = decltype(t);
    T* dx = c.out[0].as<T>();
    for_blocks(c.team, elements, kBlock, [=](int64_t begin, int64_t end) {
      for (int64_t e = begin; e < end; ++e) dx[e] = T(sums[e]);
    });
  });
}

void list_head_products(const KernelContext& c, const EachShape& each) {
  const Head head = head_of(c);
  for_edges(head, [&](int64_t first) { each(head.logits_shape(first)); });
}

void list_head_dx_products(const KernelContext& c, const EachShape& each) {
  const Head head = head_of_dx(c);
  for_edges(head, [&](int64_t first) {
    each(head.logits_shape(first));
    each(head.dw_shape(first));
    each(head.dx_shape(first));
  });
}

}  // namespace ds::cpu
