// The backward pass of attention by blocks (Dao et al., "FlashAttention", arXiv:2205.14135):
// weights are recomputed from lse, so memory grows with the number of rows, not with its square. A
// task is one key head of a sequence with the query heads that read it, so that a single thread
// sums dk and dv.
//
// The outer loop is over blocks of keys, so dk and dv of a block are summed before the next block.
// If dq of the whole sequence fits in scratch, it is summed there at the same time; otherwise a
// second pass, with the outer loop over queries, computes it.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

#include "kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/attention_dx.cpp"
#include <hwy/foreach_target.h>

#include "kernels/cpu/attention-inl.h"
#include "kernels/cpu/attention.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/gemm-inl.h"
#include "kernels/cpu/pairs-inl.h"
#include "kernels/cpu/simd-inl.h"
#include "kernels/formulas/attention_dropout.h"

HWY_BEFORE_NAMESPACE();
namespace ds::cpu::HWY_NAMESPACE {

// The operands and results of one launch.
template <typename T>
struct GradientOperands {
  Part<const T> dy, q, k, v, y;
  const float* lse;
  Part<T> dq, dk, dv;

  GradientOperands(const KernelContext& c, const HeadsShape& s) {
    std::span<const TensorView> in = c.in.subspan(1, c.in.size() - 3), tail = c.in.last(2);
    int64_t width = s.heads * s.depth;
    dy = {c.in[0].as<T>(), width, s.depth};
    y = {tail[0].as<T>(), width, s.depth};
    lse = tail[1].as<float>();
    q = s.part<const T>(in, 0);
    k = s.part<const T>(in, 1);
    v = s.part<const T>(in, 2);
    dq = s.part<T>(c.out, 0);
    dk = s.part<T>(c.out, 1);
    dv = s.part<T>(c.out, 2);
  }
};

// The gradients of one key head and its query heads, computed for one block of queries and one
// block of keys at a time. With p_ij = exp(s_ij - lse_i) and ds_ij = p_ij (m_ij dy_i . v_j - dy_i .
// y_i) (1 - (s_ij / cap)^2):
//   dq_i = scale sum_j ds_ij k_j, dk_j = scale sum_i ds_ij q_i, dv_j = sum_i m_ij p_ij dy_i
// m_ij is the factor of dropout, or 1. Without a cap, the last factor of ds_ij is 1. `p` holds m_ij
// p_ij.
template <typename T, bool kPairs>
struct GradientBlock {
  // The number of columns of dy and y that multiply_strip() processes at once.
  static constexpr int64_t kChunk = 128;
  const HeadsShape& s;
  const AttentionDropout& drop;
  const GradientOperands<T>& g;
  // The key head, the first row of the sequence, and its number of rows.
  int64_t kv, begin, length;
  // `block` is the number of rows in a block, `padded` the distance between rows of depth columns
  // (q, dy, k, dk, dv, dq), and `ld` the distance between rows of scores, both in floats.
  int64_t block, padded, ld;
  // The result of pack_mask() for the packed keys.
  const float* hidden = nullptr;
  // q (times the factor, unless kPairs), dy and k are packed as rows; kt and vt are k and v packed
  // transposed. p and ds, which first hold scores and dy v^T, are [queries, keys]. delta[i] is dy_i
  // . y_i, and alone[i] is 1 if query i sees exactly one key, else 0.
  float *q, *dy, *k, *kt, *vt, *p, *ds, *dk, *dv, *delta, *alone, *unseen, *room, *dq;
  // dy and y of a strip, transposed.
  float *dyt, *yt;
  // dy y^T of a strip.
  float* square = nullptr;
  // ds or p of a strip of keys, as rows of pairs of queries, block / 2 words apart.
  float* turned = nullptr;
  PairProducts products;
  // ds as pairs of keys, in rows ld / 2 words apart; null unless kPairs. With kPairs, p and ds hold
  // pairs of queries.
  float* ds_rows = nullptr;
  // Whether dq has room for all query heads of the whole sequence; otherwise it has room for one
  // block.
  bool whole;

  GradientBlock(const HeadsShape& shape, const AttentionDropout& dropout,
                const GradientOperands<T>& operands, std::span<std::byte> scratch, Range sequence,
                int64_t at_kv)
      : s(shape),
        drop(dropout),
        g(operands),
        kv(at_kv),
        begin(sequence.begin),
        length(sequence.size()),
        block(s.block()),
        padded(round_up(s.depth, panel())),
        ld(s.columns()) {
    Carver carve(scratch);
    constexpr int64_t kUnit = kPairs ? 2 : 1;
    for (float** rows : {&q, &dy, &k}) *rows = carve.floats(block / kUnit * padded);
    for (float** rows : {&dk, &dv}) *rows = carve.floats(block * padded);
    for (float** columns : {&kt, &vt}) *columns = carve.floats(s.depth / kUnit * ld);
    for (float** square : {&p, &ds}) *square = carve.floats(block * ld);
    for (float** row : {&delta, &alone, &unseen}) *row = carve.floats(block);
    for (float** strip : {&dyt, &yt})
      *strip = carve.floats(std::min(s.depth, kChunk) / kUnit * kStrip);
    room = carve.floats(drop.on() ? kept_room(s) : 0);
    if constexpr (kPairs) ds_rows = carve.floats(block * ld / 2);
    if (kPairs && runs_tiles()) {
      square = carve.floats(kStrip * kStrip);
      turned = carve.floats(kStrip * block / 2);
    }
    // The rest of scratch holds dq, of the whole sequence if it fits.
    whole = s.group * length * padded <= carve.left();
    dq = carve.floats((whole ? s.group * length : block) * padded);
  }

  HWY_INLINE void prefetch_queries(int64_t head, int64_t q0) {
    int64_t row = begin + q0, queries = std::clamp<int64_t>(length - q0, 0, block);
    prefetch_rows(g.q.at(row, head), g.q.row, queries, s.depth);
    prefetch_rows(g.dy.at(row, head), g.dy.row, queries, s.depth);
    prefetch_rows(g.y.at(row, head), g.y.row, queries, s.depth);
  }

  HWY_INLINE void prefetch_keys(int64_t k0) {
    int64_t row = begin + k0, keys = std::clamp<int64_t>(length - k0, 0, block);
    prefetch_rows(g.k.at(row, kv), g.k.row, keys, s.depth);
    prefetch_rows(g.v.at(row, kv), g.v.row, keys, s.depth);
  }

  // Packs q and dy of a block of queries, and computes delta and alone. Functions that are called
  // once for each block are not inlined: each contains several products, and keys_first() and
  // queries_first() would otherwise have a copy of each.
  HWY_NOINLINE void pack_queries(int64_t head, int64_t q0, int64_t queries) {
    int64_t row = begin + q0;
    if constexpr (kPairs) {
      pack_pairs(g.q.at(row, head), g.q.row, queries, s.depth, q, padded);
      pack_pairs(g.dy.at(row, head), g.dy.row, queries, s.depth, dy, padded);
    } else {
      pack_rows(g.q.at(row, head), g.q.row, queries, s.depth, s.factor, q, padded);
      pack_rows(g.dy.at(row, head), g.dy.row, queries, s.depth, 1.0f, dy, padded);
    }
    for (int64_t r = 0; r < queries; r += kStrip) {
      for (int64_t e = 0; e < s.depth; e += kChunk) {
        multiply_strip(g.dy.at(row + r, head) + e, g.y.at(row + r, head) + e,
                       std::min(kStrip, queries - r), std::min(kChunk, s.depth - e), delta + r,
                       e > 0);
      }
    }
    for (int64_t i = 0; i < queries; ++i)
      alone[i] = s.sees_one(q0 + i, begin, length) ? 1.0f : 0.0f;
  }

  // Computes out_i = dy_i . y_i for a strip of queries or, if `add`, adds the products of further
  // columns. The sum over columns has the order in which gemm() computes dy_i . v_j. If a query
  // puts all of its weight on key j, y_i equals v_j to the bit, so the gradient of its score is 0,
  // as in exact arithmetic. With different orders a rounding error would remain, which Adam would
  // turn into full-size steps.
  HWY_INLINE void multiply_strip(const T* dy_at, const T* y_at, int64_t rows, int64_t columns,
                                 float* out, bool add) {
    using Product = std::conditional_t<kPairs, Pairs, Plain>;
    const Product product;
    constexpr int64_t kUnit = kPairs ? 2 : 1;
    if constexpr (kPairs) {
      if (runs_tiles()) return multiply_strip_by_tiles(dy_at, y_at, rows, columns, out, add);
      pack_transposed(words(dy_at), g.dy.row / 2, rows, columns / 2, dyt, kStrip, kStrip);
      pack_transposed(words(y_at), g.y.row / 2, rows, columns / 2, yt, kStrip, kStrip);
    } else {
      pack_transposed(dy_at, g.dy.row, rows, columns, dyt, kStrip, kStrip);
      pack_transposed(y_at, g.y.row, rows, columns, yt, kStrip, kStrip);
    }
    for (int64_t j = 0; j < kStrip; j += lanes()) {
      Vec sum = add ? load(out + j) : hn::Zero(Lanes());
      for (int64_t e = 0; e < columns / kUnit; ++e) {
        sum = product.add(load(dyt + e * kStrip + j), load(yt + e * kStrip + j), sum);
      }
      store(product.finish(sum), out + j);
    }
  }

  // Does the work of multiply_strip() with AMX tiles, which compute the products of all pairs of
  // rows; only the diagonal is used.
  HWY_INLINE void multiply_strip_by_tiles(const T* dy_at, const T* y_at, int64_t rows,
                                          int64_t columns, float* out, bool add) {
    pack_transposed(words(y_at), g.y.row / 2, rows, columns / 2, yt, kStrip, kStrip);
    products.multiply(
        {words(dy_at), g.dy.row / 2, yt, kStrip, square, kStrip, rows, kStrip, columns / 2, add});
    for (int64_t i = 0; i < rows; ++i) out[i] = square[i * kStrip + i];
  }

  HWY_NOINLINE void pack_keys(int64_t k0, int64_t keys) {
    int64_t row = begin + k0, width = round_up(keys, kStrip);
    if constexpr (kPairs) {
      pack_pairs(g.k.at(row, kv), g.k.row, keys, s.depth, k, padded);
      pack_transposed(words(g.k.at(row, kv)), g.k.row / 2, keys, s.depth / 2, kt, width, ld);
      pack_transposed(words(g.v.at(row, kv)), g.v.row / 2, keys, s.depth / 2, vt, width, ld);
      return;
    }
    pack_rows(g.k.at(row, kv), g.k.row, keys, s.depth, 1.0f, k, padded);
    pack_transposed(g.k.at(row, kv), g.k.row, keys, s.depth, kt, width, ld);
    pack_transposed(g.v.at(row, kv), g.v.row, keys, s.depth, vt, width, ld);
    hidden = pack_mask(s, row, keys, unseen, k, padded);
  }

  // Turns a row of scores and a row of dy v^T into p and ds in place; both are 0 where a score is
  // -infinity. `mean` is dy_i . y_i. With kDrop, `kept` has the factors of dropout.
  template <bool kCapped, bool kDrop>
  HWY_INLINE void weights(float* score, float* product, Range all, float lse, float mean,
                          [[maybe_unused]] const float* kept) {
    const Lanes d;
    // Scores include the factor log2 e, whereas lse is a natural logarithm.
    const Vec shift = hn::Set(d, lse * kLog2E), center = hn::Set(d, mean),
              minus = hn::Set(d, -INFINITY);
    const Vec one = hn::Set(d, 1.0f), unit = hn::Set(d, kCapped ? 1 / s.limit : 0.0f);
    for (int64_t j = all.begin; j < all.end; j += lanes()) {
      Vec x = load(score + j), weight = exp2_negative(hn::Sub(x, shift));
      Vec change = load(product + j), whole_weight = weight;
      if constexpr (kDrop) {
        Vec factor = load(kept + (j - all.begin));
        change = hn::Mul(change, factor);
        weight = hn::Mul(weight, factor);
      }
      Vec gradient = hn::Mul(whole_weight, hn::Sub(change, center));
      if constexpr (kCapped) {
        Vec bent = hn::Mul(x, unit);
        gradient = hn::Mul(gradient, hn::NegMulAdd(bent, bent, one));
      }
      store(weight, score + j);
      store(hn::IfThenZeroElse(hn::Eq(x, minus), gradient), product + j);
    }
  }

  // Does the work of weights() for a query that sees one key: p_ij is exactly 1 and ds_ij is 0,
  // whatever the score.
  HWY_INLINE void weights_of_one(float* score, float* product, Range all, const float* kept) {
    const Lanes d;
    for (int64_t j = all.begin; j < all.end; j += lanes()) {
      auto hidden = hn::Eq(load(score + j), hn::Set(d, -INFINITY));
      Vec weight = kept ? load(kept + (j - all.begin)) : hn::Set(d, 1.0f);
      store(hn::IfThenZeroElse(hidden, weight), score + j);
      store(hn::Zero(d), product + j);
    }
  }

  template <bool kDrop>
  HWY_INLINE void weights_of_many(float* score, float* product, Range all, float lse, float mean,
                                  const float* kept) {
    if (s.limit > 0) {
      weights<true, kDrop>(score, product, all, lse, mean, kept);
    } else {
      weights<false, kDrop>(score, product, all, lse, mean, kept);
    }
  }

  // Rounds p and ds of a strip to bf16 and stores them as pairs of queries, in rows that no later
  // strip needs. Also stores ds as pairs of keys in ds_rows.
  HWY_INLINE void round_strip(int64_t r, int64_t rows, Range all) {
    auto* ds_of = reinterpret_cast<uint16_t*>(ds_rows);
    for (int64_t i = r; i < r + rows; i += 2) {
      bool two = i + 1 < r + rows;
      for (int64_t j = all.begin; j < all.end; j += lanes()) {
        auto second = [&](const float* x) HWY_ATTR {
          return rounded(two ? load(x + (i + 1) * ld + j) : hn::Zero(Lanes()));
        };
        Rounded p0 = rounded(load(p + i * ld + j)), p1 = second(p);
        Rounded ds0 = rounded(load(ds + i * ld + j)), ds1 = second(ds);
        store(interleave(p0, p1), p + i / 2 * ld + j);
        store(interleave(ds0, ds1), ds + i / 2 * ld + j);
        store(ds0, ds_of + i * ld + j);
        if (two) store(ds1, ds_of + (i + 1) * ld + j);
      }
    }
  }

  // Computes p and ds of the packed queries [q0, q0 + queries) and keys [k0, k0 + keys), strip by
  // strip. A strip covers the columns that it sees, rounded out to multiples of kStrip.
  HWY_NOINLINE void scores(int64_t head, int64_t q0, int64_t queries, int64_t k0, int64_t keys) {
    for (int64_t r = 0; r < queries; r += kStrip) {
      int64_t rows = std::min(kStrip, queries - r);
      Range all = round_out(s.columns_of(q0 + r, rows, k0, keys, length));
      int64_t columns = all.end - all.begin;
      if (columns == 0) continue;
      float *p_at = p + r * ld + all.begin, *ds_at = ds + r * ld + all.begin;
      if constexpr (kPairs) {
        int64_t row = begin + q0 + r, pairs = s.depth / 2;
        products.multiply({words(g.q.at(row, head)), g.q.row / 2, kt + all.begin, ld, p_at, ld,
                           rows, columns, pairs, false, s.factor});
        products.multiply({words(g.dy.at(row, head)), g.dy.row / 2, vt + all.begin, ld, ds_at, ld,
                           rows, columns, pairs});
      } else {
        gemm(rows, columns, s.depth, {q + r * padded, padded, 1}, kt + all.begin, ld, p_at, ld,
             false);
        gemm(rows, columns, s.depth, {dy + r * padded, padded, 1}, vt + all.begin, ld, ds_at, ld,
             false);
      }
      for (int64_t i = r; i < r + rows; ++i) {
        finish_scores(p + i * ld, all, s.columns_of(q0 + i, 1, k0, keys, length), s.limit, hidden);
        float lse = g.lse[head * s.rows + begin + q0 + i];
        const float* kept = kept_weights(drop, begin + q0 + i, head, k0, all, room);
        if (alone[i] != 0) {
          weights_of_one(p + i * ld, ds + i * ld, all, kept);
        } else if (kept) {
          weights_of_many<true>(p + i * ld, ds + i * ld, all, lse, delta[i], kept);
        } else {
          weights_of_many<false>(p + i * ld, ds + i * ld, all, lse, delta[i], nullptr);
        }
      }
      if constexpr (kPairs) round_strip(r, rows, all);
    }
  }

  // Adds ds k to `sum`, which is dq of the packed queries.
  HWY_NOINLINE void add_dq(int64_t q0, int64_t queries, int64_t k0, int64_t keys, float* sum) {
    for (int64_t r = 0; r < queries; r += kStrip) {
      int64_t rows = std::min(kStrip, queries - r);
      Range used = s.columns_of(q0 + r, rows, k0, keys, length);
      if (used.empty()) continue;
      int64_t from = round_out(used).begin;
      if constexpr (kPairs) {
        products.multiply({ds_rows + (r * ld + from) / 2, ld / 2, k + from / 2 * padded, padded,
                           sum + r * padded, padded, rows, padded, ceil_div(used.end - from, 2),
                           true});
      } else {
        gemm(rows, padded, used.end - from, {ds + r * ld + from, ld, 1}, k + from * padded, padded,
             sum + r * padded, padded, true);
      }
    }
  }

  // sum[rows, padded] += a b over the queries [from, from + count). `from` is even.
  HWY_INLINE void add_products(int64_t from, int64_t count, Operand a, const float* b, int64_t rows,
                               float* sum) {
    if constexpr (kPairs) {
      const int64_t pairs = ceil_div(count, 2);
      a.data += from / 2 * ld;
      b += from / 2 * padded;
      if (!runs_tiles()) return gemm(rows, padded, pairs, a, b, padded, sum, padded, true, Pairs());
      pack_transposed(a.data, ld, pairs, rows, turned, round_up(pairs, 4), block / 2);
      products.multiply({turned, block / 2, b, padded, sum, padded, rows, padded, pairs, true});
    } else {
      a.data += from * ld;
      gemm(rows, padded, count, a, b + from * padded, padded, sum, padded, true);
    }
  }

  // Adds ds^T q to dk and p^T dy to dv of the packed keys.
  HWY_NOINLINE void add_dkv(int64_t q0, int64_t queries, int64_t k0, int64_t keys) {
    for (int64_t j = 0; j < keys; j += kStrip) {
      int64_t rows = std::min(kStrip, keys - j);
      // In these columns, p and ds are set only for strips of queries that see one of these keys.
      Range seen = s.queries_of(k0 + j, rows, length);
      int64_t from = std::max<int64_t>(0, seen.begin - q0) / kStrip * kStrip;
      int64_t count =
          std::min(queries, round_up(std::max<int64_t>(0, seen.end - q0), kStrip)) - from;
      if (count <= 0) continue;
      add_products(from, count, {ds + j, 1, ld}, q, rows, dk + j * padded);
      add_products(from, count, {p + j, 1, ld}, dy, rows, dv + j * padded);
    }
  }

  HWY_INLINE void store_rows(const float* from, const Part<T>& out, int64_t head, int64_t first,
                             int64_t rows, float scale) {
    Vec factor = hn::Set(Lanes(), scale);
    for (int64_t i = 0; i < rows; ++i) {
      map(
          0, s.depth, out.at(begin + first + i, head),
          [=](Vec x) HWY_ATTR { return hn::Mul(x, factor); }, from + i * padded);
    }
  }

  // Computes dk and dv with the outer loop over keys, and dq as well if dq of the whole sequence
  // fits in scratch.
  void keys_first() {
    if (whole) std::fill(dq, dq + s.group * length * padded, 0.0f);
    prefetch_keys(0);
    for (int64_t k0 = 0; k0 < length; k0 += block) {
      int64_t keys = std::min(block, length - k0);
      prefetch_queries(kv * s.group, k0);
      pack_keys(k0, keys);
      prefetch_keys(k0 + block);
      for (float* sums : {dk, dv}) std::fill(sums, sums + keys * padded, 0.0f);
      Range seen = s.queries_of(k0, keys, length);
      for (int64_t h = 0; h < s.group; ++h) {
        for (int64_t q0 = seen.begin / block * block; q0 < seen.end; q0 += block) {
          int64_t queries = std::min(block, length - q0), head = kv * s.group + h;
          pack_queries(head, q0, queries);
          prefetch_queries(head, q0 + block);
          scores(head, q0, queries, k0, keys);
          add_dkv(q0, queries, k0, keys);
          if (whole) add_dq(q0, queries, k0, keys, dq + (h * length + q0) * padded);
        }
      }
      store_rows(dk, g.dk, kv, k0, keys, kPairs ? static_cast<float>(s.scale) : s.unfactor);
      store_rows(dv, g.dv, kv, k0, keys, 1.0f);
    }
    for (int64_t h = 0; whole && h < s.group; ++h) {
      store_rows(dq + h * length * padded, g.dq, kv * s.group + h, 0, length,
                 static_cast<float>(s.scale));
    }
  }

  // Computes dq with the outer loop over queries, for sequences whose dq does not fit in scratch.
  void queries_first() {
    for (int64_t head = kv * s.group; head < (kv + 1) * s.group; ++head) {
      for (int64_t q0 = 0; q0 < length; q0 += block) {
        int64_t queries = std::min(block, length - q0);
        pack_queries(head, q0, queries);
        std::fill(dq, dq + queries * padded, 0.0f);
        Range seen = s.keys_of(q0, queries, length);
        for (int64_t k0 = seen.begin / block * block; k0 < seen.end; k0 += block) {
          int64_t keys = std::min(block, length - k0);
          pack_keys(k0, keys);
          prefetch_keys(k0 + block);
          scores(head, q0, queries, k0, keys);
          add_dq(q0, queries, k0, keys, dq);
        }
        store_rows(dq, g.dq, head, q0, queries, static_cast<float>(s.scale));
      }
    }
  }

  void run() {
    keys_first();
    if (!whole) queries_first();
  }
};

template <typename T, bool kPairs>
void attention_dx_of(const KernelContext& c) {
  HeadsShape s(c.in.subspan(1, c.in.size() - 3), c.attrs);
  AttentionDropout drop(c);
  GradientOperands<T> g(c, s);
  for_tasks(c.team, s.sequences * s.groups, [&](int64_t task, int thread) HWY_ATTR {
    Range rows = s.sequence(task / s.groups), part = rows;
    // With documents, the task processes the documents that begin in its rows.
    for (int64_t row = rows.begin; row < rows.end; row = part.end) {
      if (s.documents) part = s.document_of(row);
      if (part.begin < row) continue;
      GradientBlock<T, kPairs>(s, drop, g, c.team.scratch(thread), part, task % s.groups).run();
    }
  });
}

void attention_dx(const KernelContext& c) {
  by_type(c.in[1].dtype, [&](auto t) {
    using T = decltype(t);
    if constexpr (kHasPairs && std::is_same_v<T, bf16>) {
      if (takes_pairs(HeadsShape(c.in.subspan(1, c.in.size() - 3), c.attrs))) {
        return attention_dx_of<T, true>(c);
      }
    }
    attention_dx_of<T, false>(c);
  });
}

void add_attention_dx(KernelRegistry& registry) {
  add_kernel(registry, "attention_dx", attention_dx);
}

}  // namespace ds::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
