#pragma once
// Parts that both attention kernels (attention.cu and attention_mma.cu) share: which keys a query
// attends to, how a score is scaled and capped, and which weights dropout keeps. Included by .cu
// files only.
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

// Returns the first row of the sequence that `row` belongs to. With documents, that is the first
// row of its document, but at most seq - 1 rows before `row`.
template <typename Row>
DS_DEVICE Row begin_of(const AttentionArgs& a, Row row) {
  const auto seq = static_cast<Row>(a.seq);
  if (!a.first) return row / seq * seq;
  return smaller(larger(static_cast<Row>(a.first[row]), larger(0, row - seq + 1)), row);
}
// Returns the first row after `row` that belongs to another sequence, or `end` if all rows from
// `row` to `end` belong to this one. `begin` is the first row of the sequence of `row`. The search
// through documents is linear, but it is skipped if the last row before `end` belongs to the same
// sequence.
template <typename Row>
DS_DEVICE Row behind_of(const AttentionArgs& a, Row row, Row begin, Row end) {
  if (!a.first) return smaller(begin + static_cast<Row>(a.seq), end);
  if (begin_of(a, end - 1) == begin) return end;
  Row behind = row + 1;
  while (begin_of(a, behind) == begin) ++behind;
  return behind;
}

// Returns whether dropout applies: the attribute is set and the step trains.
DS_DEVICE bool drops(const AttentionArgs& a) { return a.share > 0 && a.scalars->train != 0; }
// Returns the random stream of this operation in this step and micro-batch (core/base/random.h).
DS_DEVICE Stream stream_of(const AttentionArgs& a) {
  return {a.scalars->seed, static_cast<uint32_t>(a.scalars->step), static_cast<uint32_t>(a.leaf),
          a.op};
}
// Returns the index, in the random stream, of the word for a pair of a query and a key. Each row of
// a head has a.words words, one for each key of its sequence and possibly some unused ones. Words
// are generated four at a time.
DS_DEVICE uint64_t number_of(const AttentionArgs& a, int64_t query, int64_t begin, int64_t key,
                             int64_t head) {
  return static_cast<uint64_t>((query * a.heads + head) * a.words + key - begin);
}
// Returns whether dropout keeps the pair whose word has index `number`. `four` is the block of four
// words that contains this word. The caller multiplies a kept weight by a.factor.
DS_DEVICE bool keeps(const AttentionArgs& a, const Words& four, uint64_t number) {
  return uniform01(word(four, static_cast<uint32_t>(number % 4))) >= a.share;
}

// Turns the dot product of q and k into a score. The multiplication is never fused with later
// operations, so that backward computes exactly the same weights as forward.
template <typename Args>
DS_DEVICE float scaled(const Args& a, float product) {
  return __fmul_rn(a.scale, product);
}
// Applies the soft cap: cap * tanh(s / cap).
template <typename Args>
DS_DEVICE float bent(const Args& a, float s) {
  return __fmul_rn(a.cap, tanhf(s / a.cap));
}
// Returns the score for the dot product of q and k: scaled, and capped if there is a cap.
template <typename Args>
DS_DEVICE float score(const Args& a, float product) {
  const float s = scaled(a, product);
  return a.cap == 0 ? s : bent(a, s);
}
// Returns the derivative of bent() where its result is s: 1 - (s / cap)^2.
DS_DEVICE float slope_of(const AttentionArgs& a, float s) {
  const float share = s / a.cap;
  return 1 - share * share;
}

// Return the largest value, and the sum, over the four threads that share a row. row_largest()
// ignores a NaN of another thread.
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

// Calls f(begin, key) for each tile of keys to which one of the `tile` queries from `first` on may
// attend, sequence by sequence: `begin` is the sequence's first row, `key` the tile's first key.
// Tiles are counted from the sequence's first row, so the sums of a row do not depend on where its
// sequence is in the batch.
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

// Returns whether a query whose sequence begins at `begin` attends to a key: the key is in the same
// sequence, not later than the query if causal, inside the window, and not masked.
template <typename Row>
DS_DEVICE bool sees(const AttentionArgs& a, Row query, Row begin, Row key) {
  return key < a.rows && begin_of(a, key) == begin && (!a.causal || key <= query) &&
         (a.window == 0 || key > query - a.window) && (!a.mask || a.mask[key] != 0);
}

// Returns whether a row attends to exactly one key. Without documents and a mask, this follows from
// the bounds; otherwise the keys are counted, up to two.
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
