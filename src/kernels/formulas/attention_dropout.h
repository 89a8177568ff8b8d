#pragma once
#include <cstdint>

#include "core/base/attrs.h"
#include "core/base/random.h"
#include "core/base/round.h"
#include "kernels/formulas/op_stream.h"
#include "kernels/kernel.h"

namespace ds {

// The dropout of attention weights in a training step: it decides which weights are dropped, and
// how the others are scaled (attributes `dropout` and `op` of `attention` in
// docs/reference/ops.md). The forward and backward passes of every implementation draw the same
// random words.
struct AttentionDropout {
  // The words of each query and head start at a multiple of this number.
  static constexpr int64_t kUnit = 64;

  // `c` is the launch of attention or attention_dx.
  explicit AttentionDropout(const KernelContext& c)
      : heads(c.attrs.integer("heads")), width(round_up(c.attrs.integer("seq"), kUnit)) {
    double p = c.scalars.train == 0 ? 0 : c.attrs.real_or("dropout", 0);
    if (p == 0) return;
    share = static_cast<float>(p);
    factor = 1 / (1 - p);
    stream = op_stream(c);
  }

  bool on() const { return share > 0; }
  // Returns the index in the stream of the word for query `row` of the batch, head `head` and the
  // first key of the query's sequence. The words for the next keys follow.
  int64_t first_word(int64_t row, int64_t head) const { return (row * heads + head) * width; }

  int64_t heads, width;
  // The probability of dropping a weight. A weight is kept if uniform01(word) >= share.
  float share = 0;
  // The factor of the weights that are kept: 1 / (1 - probability).
  double factor = 1;
  RandomStream stream;
};

}  // namespace ds
