#pragma once
#include <cmath>
#include <cstdint>

namespace ds {

// The softmax of one row of logits, p_v = exp(logit_v - top) / (1 + rest), as cross_entropy hands
// it on in its `stats`. The two numbers stay apart: their one-number form top + log(1 + rest)
// carries a rounding error of its own size, which is all that is left of 1 - p where p is nearly 1.
// For the same reason `rest` leaves the largest logit out: its term is exactly 1.
template <typename A>
struct RowSoftmax {
  A top;   // largest logit
  A rest;  // sum of exp(logit - top) over all words but one of the largest

  A sum() const { return 1 + rest; }
  // -log p and 1 - p of a word. Both are sums of terms that are not negative.
  A loss(A logit) const { return std::log1p(rest) + (top - logit); }
  A miss(A logit) const { return (rest - std::expm1(logit - top)) / sum(); }

  // Of the row logit(0), ..., logit(words - 1).
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
