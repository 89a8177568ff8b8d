#pragma once
// Which pairs of rows an attention is of, and what is left of a pair's weight: what both of its
// kernels share. Included by .cu files only.
#include <cstdint>

#include "kernels/cuda/attention.h"
#include "kernels/cuda/device.h"

namespace ds::cuda {

template <typename A, typename B>
DS_DEVICE auto smaller(A a, B b) {
  return a < b ? a : b;
}
template <typename A, typename B>
DS_DEVICE auto larger(A a, B b) {
  return a > b ? a : b;
}

// The first row of the sequence that `row` is in.
template <typename Row>
DS_DEVICE Row begin_of(const AttentionArgs& a, Row row) {
  const auto seq = static_cast<Row>(a.seq);
  if (!a.first) return row / seq * seq;
  return smaller(larger(static_cast<Row>(a.first[row]), larger(0, row - seq + 1)), row);
}
// The first row behind `row` that is not of its sequence, which begins at `begin`, or `end`.
template <typename Row>
DS_DEVICE Row behind_of(const AttentionArgs& a, Row row, Row begin, Row end) {
  if (!a.first) return smaller(begin + static_cast<Row>(a.seq), end);
  if (begin_of(a, end - 1) == begin) return end;
  Row behind = row + 1;
  while (begin_of(a, behind) == begin) ++behind;
  return behind;
}

DS_DEVICE bool drops(const AttentionArgs& a) { return a.share > 0 && a.scalars->train != 0; }
DS_DEVICE Stream stream_of(const AttentionArgs& a) {
  return {a.scalars->seed, static_cast<uint32_t>(a.scalars->step), static_cast<uint32_t>(a.leaf),
          a.op};
}
// The number of a pair's word in the stream, four of which are made at a time.
DS_DEVICE uint64_t number_of(const AttentionArgs& a, int64_t query, int64_t begin, int64_t key,
                             int64_t head) {
  return static_cast<uint64_t>((query * a.heads + head) * a.words + key - begin);
}
// Whether dropout keeps pair `number`, which `four` is made for; its weight is then multiplied by
// a.factor.
DS_DEVICE bool keeps(const AttentionArgs& a, const Words& four, uint64_t number) {
  return uniform01(word(four, static_cast<uint32_t>(number % 4))) >= a.share;
}

// A score from the product of q and k. Neither product is fused with what is done with a score: a
// weight of backward has the bits of forward's.
template <typename Args>
DS_DEVICE float scaled(const Args& a, float product) {
  return __fmul_rn(a.scale, product);
}
template <typename Args>
DS_DEVICE float bent(const Args& a, float s) {
  return __fmul_rn(a.cap, tanhf(s / a.cap));
}
template <typename Args>
DS_DEVICE float score(const Args& a, float product) {
  const float s = scaled(a, product);
  return a.cap == 0 ? s : bent(a, s);
}
// What the gradient of a score is multiplied by for what bent() did.
DS_DEVICE float slope_of(const AttentionArgs& a, float s) {
  const float share = s / a.cap;
  return 1 - share * share;
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

// Walks the `tile` queries from `first` on through the keys of each of their sequences, by tiles
// counted from the sequence's first row: f(begin of the sequence, first key of a tile).
template <int tile, typename F>
DS_DEVICE void each_key_tile(const AttentionArgs& a, int64_t first, const F& f) {
  const int64_t end = smaller(first + tile, a.rows);
  for (int64_t row = first; row < end;) {
    const int64_t begin = begin_of(a, row);
    const int64_t behind = behind_of(a, row, begin, end);
    const int64_t last = a.causal ? behind : smaller(begin + a.seq, a.rows);
    const int64_t low = a.window == 0 ? begin : larger(begin, row - a.window + 1);
    for (int64_t key = begin + (low - begin) / tile * tile; key < last; key += tile) f(begin, key);
    row = behind;
  }
}

// Whether a query, whose sequence begins at `begin`, sees a key.
template <typename Row>
DS_DEVICE bool sees(const AttentionArgs& a, Row query, Row begin, Row key) {
  return key < a.rows && begin_of(a, key) == begin && (!a.causal || key <= query) &&
         (a.window == 0 || key > query - a.window) && (!a.mask || a.mask[key] != 0);
}

// Whether a row sees one key only.
template <typename Row>
DS_DEVICE bool sees_one(const AttentionArgs& a, Row row) {
  const Row begin = begin_of(a, row);
  const Row end = a.causal ? row + 1 : static_cast<Row>(smaller(begin + a.seq, a.rows));
  const Row low = a.window == 0 ? begin : static_cast<Row>(larger(begin, row - a.window + 1));
  if (!a.mask && !a.first) return end - low == 1;
  int seen = 0;
  for (Row key = low; key < end && seen < 2; ++key) seen += sees(a, row, begin, key) ? 1 : 0;
  return seen == 1;
}

}  // namespace ds::cuda
