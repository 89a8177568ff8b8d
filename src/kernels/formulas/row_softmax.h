#pragma once
#include <cmath>
#include <cstdint>

namespace ds {

// The softmax of one row of logits, p_v = exp(logit_v - top) / (1 + rest), as cross_entropy stores
// it in its result `stats`. top and rest are stored separately, because the rounding error of top +
// log(1 + rest) grows with top: if p is nearly 1, it would exceed 1 - p. For the same reason `rest`
// omits the term of the largest logit, which is exactly 1.
template <typename A>
struct RowSoftmax {
  // The largest logit.
  A top;
  // The sum of exp(logit - top) over all words except one of the largest.
  A rest;

  A sum() const { return 1 + rest; }
  // Return -log p and 1 - p of the word that has this logit. Both are sums of terms that are not
  // negative, so nothing cancels.
  A loss(A logit) const { return std::log1p(rest) + (top - logit); }
  A miss(A logit) const { return (rest - std::expm1(logit - top)) / sum(); }

  // Returns the softmax of the row logit(0), ..., logit(words - 1).
  template <typename F>
  static RowSoftmax of(int64_t words, const F& logit) {
    RowSoftmax row{logit(0), 0};
    int64_t largest = 0;
    for (int64_t v = 1; v < words; ++v) {
      if (A x = logit(v); x > row.top) {
        row.top = x;
        largest = v;
      }
    }
    for (int64_t v = 0; v < words; ++v) row.rest += v == largest ? 0 : std::exp(logit(v) - row.top);
    return row;
  }
};

}  // namespace ds
