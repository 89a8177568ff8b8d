// The forward pass of attention by blocks of keys (Dao et al., "FlashAttention", arXiv:2205.14135),
// so that scores never leave the cache. A task is a chunk of queries of one head. It visits the
// keys that these queries see block by block, with a running maximum and sum for each query. Scores
// include the factor log2 e, so weights are powers of 2. With AVX512_BF16 or AMX, bf16 operands
// with an even depth and no mask are multiplied in pairs (pairs-inl.h, tile_product.h), and q is
// read in place; other operands are packed as f32.
//
// The bits of a row depend only on its sequence: blocks are counted from the sequence's first row,
// and a key that is not seen has weight 0.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

#include "kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/attention.cpp"
#include <hwy/foreach_target.h>

#include "kernels/cpu/attention-inl.h"
#include "kernels/cpu/attention.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/pairs-inl.h"
#include "kernels/cpu/simd-inl.h"
#include "kernels/formulas/attention_dropout.h"

HWY_BEFORE_NAMESPACE();
namespace ds::cpu::HWY_NAMESPACE {

// Returns the number of queries in a task. Up to a depth of 1024, their q and output sums occupy at
// most 256 KiB, half of a typical second-level cache, and each key is packed once for all of them.
HWY_INLINE int64_t chunk_of(const HeadsShape& s) {
  return std::clamp<int64_t>(32768 / (s.depth * s.block()), 1, 4) * s.block();
}

// One chunk of queries of one head against the keys that they see, one block of keys at a time,
// with the running maximum and sum of Milakov and Gimelshein, "Online normalizer calculation for
// softmax" (2018).
template <typename T, bool kPairs>
struct AttentionChunk {
  const HeadsShape& s;
  const AttentionDropout& drop;
  Part<const T> q_in, k_in, v_in;
  // The query head, the first row of the sequence, and its number of rows.
  int64_t head, begin, length;
  // `padded` is the distance between rows of v and o, and `ld` between rows of scores, in floats.
  int64_t padded, ld;
  // The result of pack_mask() for the packed keys.
  const float* hidden = nullptr;
  // q (unless kPairs), kt and v are packed operands, where kt is k transposed. `scores` holds a
  // strip; o, top and total are the running output, maximum and sum of each query. unseen and room
  // are memory for pack_mask() and kept_weights().
  float *q, *kt, *v, *scores, *o, *top, *total, *unseen, *room;
  PairProducts products;

  AttentionChunk(const HeadsShape& shape, const AttentionDropout& dropout,
                 std::span<const TensorView> in, std::span<std::byte> scratch, Range sequence,
                 int64_t at_head)
      : s(shape),
        drop(dropout),
        q_in(s.part<const T>(in, 0)),
        k_in(s.part<const T>(in, 1)),
        v_in(s.part<const T>(in, 2)),
        head(at_head),
        begin(sequence.begin),
        length(sequence.size()),
        padded(round_up(s.depth, panel())),
        ld(s.columns()) {
    Carver carve(scratch);
    int64_t chunk = chunk_of(s);
    int64_t unit = kPairs ? 2 : 1;
    // With pairs, q is read in place.
    q = carve.floats(kPairs ? 0 : chunk * s.depth);
    kt = carve.floats(s.depth / unit * ld);
    v = carve.floats(s.block() / unit * padded);
    scores = carve.floats(kStrip * ld);
    o = carve.floats(chunk * padded);
    top = carve.floats(chunk);
    total = carve.floats(chunk);
    unseen = carve.floats(s.block());
    room = carve.floats(drop.on() ? kept_room(s) : 0);
  }

  // Turns the scores of one query into weights exp2(score - top) in place. With kPairs, weights are
  // stored as bf16 from the position of the first column of `all` on. With kDrop, they are
  // multiplied by `kept`, whose first element belongs to that column. If the query's maximum grows,
  // its running sum and output are rescaled.
  template <bool kDrop>
  HWY_INLINE void softmax(float* row, Range all, int64_t query,
                          [[maybe_unused]] const float* kept) {
    const Lanes d;
    const int64_t step = lanes();
    Vec most = hn::Set(d, -INFINITY);
    for (int64_t j = all.begin; j < all.end; j += step) most = hn::Max(most, load(row + j));
    [[maybe_unused]] auto* pairs = reinterpret_cast<uint16_t*>(row + all.begin);
    float before = top[query], now = std::max(before, maximum(most));
    Vec shift = hn::Set(d, now == -INFINITY ? 0.0f : now), partial = hn::Zero(d);
    for (int64_t j = all.begin; j < all.end; j += step) {
      Vec p = exp2_negative(hn::Sub(load(row + j), shift));
      partial = hn::Add(partial, p);
      if constexpr (kDrop) p = hn::Mul(p, load(kept + (j - all.begin)));
      if constexpr (kPairs) {
        store(rounded(p), pairs + (j - all.begin));
      } else {
        store(p, row + j);
      }
    }
    float added = sum(partial);
    if (now == before || before == -INFINITY) {
      total[query] += added;
    } else {
      // The weights of earlier blocks are relative to the old maximum.
      float shrink = std::exp2(before - now);
      total[query] = total[query] * shrink + added;
      Vec factor = hn::Set(d, shrink);
      float* out = o + query * padded;
      for (int64_t e = 0; e < padded; e += step) store(hn::Mul(load(out + e), factor), out + e);
    }
    top[query] = now;
  }

  // Multiplies `rows` queries, from query `first` of the sequence on, with the packed keys in the
  // columns `all`. Unless kPairs, the queries are packed from row r of q on.
  HWY_INLINE void multiply_keys(int64_t first, int64_t r, int64_t rows, Range all) {
    int64_t columns = all.end - all.begin;
    if constexpr (kPairs) {
      products.multiply({words(q_in.at(begin + first, head)), q_in.row / 2, kt + all.begin, ld,
                         scores + all.begin, ld, rows, columns, s.depth / 2, false, s.factor});
    } else {
      gemm(rows, columns, s.depth, {q + r * s.depth, s.depth, 1}, kt + all.begin, ld,
           scores + all.begin, ld, false);
    }
  }

  HWY_INLINE void pack_keys(int64_t k0, int64_t keys) {
    int64_t row = begin + k0, kv = head / s.group, width = round_up(keys, kStrip);
    const T *k = k_in.at(row, kv), *v_at = v_in.at(row, kv);
    if constexpr (kPairs) {
      pack_transposed(words(k), k_in.row / 2, keys, s.depth / 2, kt, width, ld);
      pack_pairs(v_at, v_in.row, keys, s.depth, v, padded);
    } else {
      pack_transposed(k, k_in.row, keys, s.depth, kt, width, ld);
      pack_rows(v_at, v_in.row, keys, s.depth, 1.0f, v, padded);
      hidden = pack_mask(s, row, keys, unseen, v, padded);
    }
  }

  // Processes the packed queries [q0, q0 + queries) against the packed keys [k0, k0 + keys).
  HWY_INLINE void keys_block(int64_t q0, int64_t queries, int64_t k0, int64_t keys) {
    // The scores of a strip of queries stay in the first-level cache until their weights have been
    // multiplied with v.
    for (int64_t r = 0; r < queries; r += kStrip) {
      int64_t rows = std::min(kStrip, queries - r);
      Range used = s.columns_of(q0 + r, rows, k0, keys, length), all = round_out(used);
      if (used.empty()) continue;
      multiply_keys(q0 + r, r, rows, all);
      for (int64_t i = 0; i < rows; ++i) {
        float* row = scores + i * ld;
        finish_scores(row, all, s.columns_of(q0 + r + i, 1, k0, keys, length), s.limit, hidden);
        if (const float* kept = kept_weights(drop, begin + q0 + r + i, head, k0, all, room)) {
          softmax<true>(row, all, r + i, kept);
        } else {
          softmax<false>(row, all, r + i, nullptr);
        }
      }
      Operand p{scores + all.begin, ld, 1};
      int64_t count = used.end - all.begin;
      if constexpr (kPairs) {
        products.multiply({p.data, ld, v + all.begin / 2 * padded, padded, o + r * padded, padded,
                           rows, padded, ceil_div(count, 2), true});
      } else {
        gemm(rows, padded, count, p, v + all.begin * padded, padded, o + r * padded, padded, true);
      }
    }
  }

  // Prefetches a block of keys and values while another one is processed.
  HWY_INLINE void prefetch_keys(int64_t k0, int64_t keys) {
    prefetch_rows(k_in.at(begin + k0, head / s.group), k_in.row, keys, s.depth);
    prefetch_rows(v_in.at(begin + k0, head / s.group), v_in.row, keys, s.depth);
  }

  // Computes y and lse of the chunk of queries that begins with query q0 of the sequence.
  void run(int64_t q0, T* y, float* lse) {
    int64_t queries = std::min(chunk_of(s), length - q0), block = s.block();
    Range seen = s.keys_of(q0, queries, length);
    prefetch_keys(seen.begin / block * block, std::min(block, seen.end));
    if (!kPairs)
      pack_rows(q_in.at(begin + q0, head), q_in.row, queries, s.depth, s.factor, q, s.depth);
    std::fill(top, top + queries, -INFINITY);
    std::fill(total, total + queries, 0.0f);
    std::fill(o, o + queries * padded, 0.0f);
    for (int64_t k0 = seen.begin / block * block; k0 < seen.end; k0 += block) {
      int64_t keys = std::min(block, seen.end - k0);
      pack_keys(k0, keys);
      prefetch_keys(k0 + block, std::clamp<int64_t>(seen.end - k0 - block, 0, block));
      keys_block(q0, queries, k0, keys);
    }
    for (int64_t i = 0; i < queries; ++i) {
      int64_t row = begin + q0 + i;
      // If the row sees no key, y and lse are 0.
      bool blind = total[i] == 0;
      Vec factor = hn::Set(Lanes(), blind ? 0.0f : 1 / total[i]);
      map(
          0, s.depth, y + (row * s.heads + head) * s.depth,
          [=](Vec value) HWY_ATTR { return hn::Mul(value, factor); }, o + i * padded);
      lse[head * s.rows + row] = blind ? 0.0f : top[i] * kLn2 + std::log(total[i]);
    }
  }
};

// y[i] = sum over keys j that i sees of m_ij exp(s_ij - lse_i) v_j, where lse_i = log sum exp s_ij
// and m_ij is the factor of dropout, or 1. y[i] and lse_i are 0 if i sees no key.
template <typename T, bool kPairs>
void attention_of(const KernelContext& c) {
  HeadsShape s(c.in, c.attrs);
  AttentionDropout drop(c);
  T* y = c.out[0].as<T>();
  float* lse = c.out[1].as<float>();
  int64_t chunk = chunk_of(s), chunks = ceil_div(s.seq, chunk);
  if (s.documents) {
    // A task computes the chunks of queries that begin in its rows, at most one chunk per document.
    for_tasks(c.team, ceil_div(s.rows, chunk) * s.heads, [&](int64_t task, int thread) HWY_ATTR {
      int64_t row = task / s.heads * chunk, last = std::min(row + chunk, s.rows);
      while (row < last) {
        Range document = s.document_of(row);
        int64_t q0 = round_up(row - document.begin, chunk);
        if (document.begin + q0 < std::min(last, document.end)) {
          AttentionChunk<T, kPairs>(s, drop, c.in, c.team.scratch(thread), document, task % s.heads)
              .run(q0, y, lse);
        }
        row = document.end;
      }
    });
    return;
  }
  for_tasks(c.team, s.sequences * s.heads * chunks, [&](int64_t task, int thread) HWY_ATTR {
    // The longest chunks, those with the most keys, start first, so that all threads finish at
    // about the same time.
    int64_t q0 = (chunks - 1 - task / (s.sequences * s.heads)) * chunk;
    int64_t sequence = task / s.heads % s.sequences, head = task % s.heads;
    if (q0 >= s.sequence(sequence).size()) return;
    AttentionChunk<T, kPairs>(s, drop, c.in, c.team.scratch(thread), s.sequence(sequence), head)
        .run(q0, y, lse);
  });
}

void attention(const KernelContext& c) {
  by_type(c.in[0].dtype, [&](auto t) {
    using T = decltype(t);
    if constexpr (kHasPairs && std::is_same_v<T, bf16>) {
      if (takes_pairs(HeadsShape(c.in, c.attrs))) return attention_of<T, true>(c);
    }
    attention_of<T, false>(c);
  });
}

void add_attention(KernelRegistry& registry) { add_kernel(registry, "attention", attention); }

}  // namespace ds::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
