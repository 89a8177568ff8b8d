#pragma once
#include <cstdint>

#include "core/base/attrs.h"
#include "core/base/random.h"
#include "core/base/round.h"
#include "kernels/kernel.h"

namespace ds {

// Which weights of an attention are dropped in a step of training, and what the others are
// multiplied by: the attributes `dropout` and `op` of `attention` in docs/reference/ops.md. The
// forward and the backward pass of any implementation draw the same words.
struct AttentionDropout {
  // Words of a query begin at a multiple of these.
  static constexpr int64_t kUnit = 64;

  // attrs of attention or attention_dx; c: of its launch.
  explicit AttentionDropout(const KernelContext& c)
      : heads(c.attrs.integer("heads")), width(round_up(c.attrs.integer("seq"), kUnit)) {
    double p = c.scalars.train == 0 ? 0 : c.attrs.real_or("dropout", 0);
    if (p == 0) return;
    share = static_cast<float>(p);
    factor = 1 / (1 - p);
    stream = {c.scalars.seed, static_cast<uint32_t>(c.scalars.step), static_cast<uint32_t>(c.leaf),
              static_cast<uint32_t>(c.attrs.integer("op"))};
  }

  bool on() const { return share > 0; }
  // Number of the word for the first key of the sequence that row `row` of the batch is in; those
  // of the keys that follow are next to it.
  int64_t first_word(int64_t row, int64_t head) const { return (row * heads + head) * width; }

  int64_t heads, width;
  float share = 0;    // a weight is kept where uniform01(word) >= share
  double factor = 1;  // of weights that are kept
  RandomStream stream;
};

}  // namespace ds
