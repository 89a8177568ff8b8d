#pragma once
// Which pairs of rows an attention is of, and what is left of a pair's weight: what both of its kernels
// share. Included by .cu files only.
#include <cstdint>

#include "kernels/cuda/attention.h"
#include "kernels/cuda/device.h"

namespace ds::cuda {

DS_DEVICE int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }
DS_DEVICE int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }

// The first row of the sequence that `row` is in.
DS_DEVICE int64_t begin_of(const AttentionArgs& a, int64_t row) {
  if (!a.first) return row / a.seq * a.seq;
  return smaller(larger(a.first[row], larger(0, row - a.seq + 1)), row);
}
DS_DEVICE bool drops(const AttentionArgs& a) { return a.share > 0 && a.scalars->train != 0; }
// What dropout multiplies a weight by.
DS_DEVICE float kept(const AttentionArgs& a, int64_t query, int64_t begin, int64_t key, int64_t head) {
  const Stream stream{a.scalars->seed, static_cast<uint32_t>(a.scalars->step), static_cast<uint32_t>(a.leaf),
                      a.op};
  const auto number = static_cast<uint64_t>((query * a.heads + head) * a.words + key - begin);
  return uniform01(word(words_of(stream, number / 4), static_cast<uint32_t>(number % 4))) >= a.share
             ? a.factor
             : 0.0f;
}
template <typename Args>
DS_DEVICE float score(const Args& a, float product) {
  const float s = a.scale * product;
  return a.cap == 0 ? s : a.cap * tanhf(s / a.cap);
}
// The gradient of a pair's product of q and k: `product` is that of dy and v.
DS_DEVICE float score_gradient(const AttentionArgs& a, float s, float p, float product, float share,
                               float delta, bool alone) {
  float slope = 1;
  if (a.cap != 0) {
    const float bent = s / a.cap;
    slope = 1 - bent * bent;
  }
  return alone ? 0.0f : a.scale * p * (share * product - delta) * slope;
}

// Over the four threads of a row.
DS_DEVICE float row_largest(float x) {
  float other = __shfl_xor_sync(kAll, x, 1);
  x = other > x ? other : x;
  other = __shfl_xor_sync(kAll, x, 2);
  return other > x ? other : x;
}
DS_DEVICE float row_sum(float x) {
  x += __shfl_xor_sync(kAll, x, 1);
  return x + __shfl_xor_sync(kAll, x, 2);
}

// Walks the `tile` queries from `first` on through the keys of each of their sequences, by tiles counted from
// the sequence's first row: f(begin of the sequence, first key of a tile).
template <int tile, typename F>
DS_DEVICE void each_key_tile(const AttentionArgs& a, int64_t first, const F& f) {
  const int64_t end = smaller(first + tile, a.rows);
  for (int64_t row = first; row < end;) {
    const int64_t begin = begin_of(a, row);
    int64_t behind = row + 1;  // the first row of the next sequence
    while (behind < end && begin_of(a, behind) == begin) ++behind;
    const int64_t last = a.causal ? behind : smaller(begin + a.seq, a.rows);
    const int64_t low = a.window == 0 ? begin : larger(begin, row - a.window + 1);
    for (int64_t key = begin + (low - begin) / tile * tile; key < last; key += tile) f(begin, key);
    row = behind;
  }
}

}  // namespace ds::cuda
