#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string_view>

#include "core/base/attrs.h"
#include "kernels/formulas/row_softmax.h"

namespace ds {

// Computes the loss of a row of V logits as the attributes of cross_entropy define it. With softmax
// p and L = log sum exp(logit):
//   loss = (1 - e) (-log p_target) + e mean_v(-log p_v) + z L^2
//   dloss / dlogit_v = (1 + 2 z L) p_v - e / V - (1 - e) [v = target]
// where e = label_smoothing and z = z_loss.
template <typename A>
struct RowLoss {
  A smoothing = 0, z = 0;
  int64_t words = 1;

  static RowLoss of(const Attrs& attrs, int64_t words) {
    return {static_cast<A>(attrs.real_or("label_smoothing", 0)),
            static_cast<A>(attrs.real_or("z_loss", 0)), words};
  }
  bool plain() const { return smoothing == 0 && z == 0; }

  // Returns the loss of a row whose target has the logit `logit`. `spread` is the sum of top -
  // logit over all words, or 0 without smoothing; no term is negative, so nothing cancels.
  A value(const RowSoftmax<A>& row, A logit, A spread) const {
    A loss = row.loss(logit);
    if (smoothing != 0) {
      A even = std::log1p(row.rest) + spread / static_cast<A>(words);
      loss = (1 - smoothing) * loss + smoothing * even;
    }
    if (z != 0) loss += z * log_sum(row) * log_sum(row);
    return loss;
  }

  // Returns the factor 1 + 2 z L of p_v in the gradient.
  A growth(const RowSoftmax<A>& row) const { return z == 0 ? A(1) : 1 + 2 * z * log_sum(row); }
  // Returns e / V.
  A share() const { return smoothing / static_cast<A>(words); }
  // Return the gradient with respect to the target's logit, and to any other logit. The first is
  // computed from 1 - p (RowSoftmax::miss), which stays accurate when p is nearly 1.
  A of_target(const RowSoftmax<A>& row, A logit) const {
    if (plain()) return -row.miss(logit);
    A more = z == 0 ? A(0) : 2 * z * log_sum(row) * (1 - row.miss(logit));
    return smoothing - share() + more - row.miss(logit);
  }
  A of_other(const RowSoftmax<A>& row, A p) const {
    return plain() ? p : growth(row) * p - share();
  }

 private:
  static A log_sum(const RowSoftmax<A>& row) { return row.top + std::log1p(row.rest); }
};

// Attribute `reduction`: how the losses of rows are combined into the result. Rows without a target
// are left out; with `none`, their result is 0.
enum class Reduction : int8_t { mean, sum, none };

inline Reduction reduction_of(const Attrs& attrs) {
  const std::string_view name = attrs.text_or("reduction", "mean");
  return name == "none" ? Reduction::none : name == "sum" ? Reduction::sum : Reduction::mean;
}

// The gradient with respect to the loss of each row, computed from the gradient with respect to the
// result.
template <typename A>
struct LossGradient {
  // One gradient for each row. Null if every row has the gradient `all`.
  const A* each;
  A all;

  static LossGradient of(const Attrs& attrs, const A* dloss, const int32_t* targets, int64_t rows) {
    const Reduction reduction = reduction_of(attrs);
    if (reduction == Reduction::none) return {dloss, 0};
    if (reduction == Reduction::sum) return {nullptr, dloss[0]};
    int64_t counted =
        std::count_if(targets, targets + rows, [](int32_t target) { return target >= 0; });
    return {nullptr, counted == 0 ? 0 : dloss[0] / static_cast<A>(counted)};
  }
  A of_row(int64_t r) const { return each ? each[r] : all; }
};

}  // namespace ds
