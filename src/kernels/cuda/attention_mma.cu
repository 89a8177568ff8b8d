// Attention of bf16 or f16 operands and heads of at most 128 columns: its products are made by tensor cores,
// its scores, weights and sums in f32. kernels/cuda/attention.cu holds the kernel for all other operands.
//
// Four warps share a block of 64 queries, or of 64 keys for dk and dv; a warp has 16 of them. Tiles of 64
// keys, or queries, come through shared memory, with a pitch that lets eight rows be read at once from
// different banks (mma.h says how a warp holds a matrix). A warp's scores are already in the places that its
// weights need as the left side of the next product; only dk and dv want them transposed, through shared
// memory (Dao, "FlashAttention-2", arXiv:2307.08691). Weights and the gradients of scores are rounded to the
// operands' type for those products (kernels/accuracy.h allows it); of f16, a gradient beyond 65,504 becomes
// infinite, which a loss scale sees.
//
// Bits of a row depend on its own sequence only: tiles are counted from the sequence's first row, wherever
// the sequence lies in the batch, so that a product always adds up the same 16 keys, or queries, at a time;
// and a pair that does not count has weight 0, which adds exactly nothing to finite rows. Masked keys are 0
// in a tile, whatever they are in memory. Nothing is added atomically.
//
// Where a row sees one key its weight is 1 to the bit, because backward makes the score by the same products
// in the same order as forward; that its gradient is 0 is said (`alone`), because dy . y is a sum of another
// order.
#include "kernels/cuda/attention-inl.h"
#include "kernels/cuda/mma.h"

namespace ds::cuda {
namespace {

constexpr int kSide = kMmaTile, kOfWarp = kSide / 4;  // rows of a block, and of a warp
constexpr int kMatrices = kSide / 8;                  // of 8 columns each, across a tile

// A matrix of 16-bit elements in shared memory, with `pitch` elements between rows.
template <int pitch>
struct Matrix {
  uint16_t* at;
};
template <int depth>
using Tile = Matrix<depth + 8>;

DS_DEVICE int lane() { return static_cast<int>(threadIdx.x % kWarp); }
DS_DEVICE int first_of_warp() { return static_cast<int>(threadIdx.x / kWarp) * kOfWarp; }

// 16 x 16 elements as the left side of a product. Transposed: as the right sides of two, of 8 columns each.
template <bool transposed, int pitch>
DS_DEVICE Words4 by_rows(Matrix<pitch> m, int row, int column) {
  return load_matrices<transposed>(m.at + (row + lane() % 16) * pitch + column + lane() / 16 * 8);
}
// 16 x 16 elements whose rows are the columns of the right sides of two products. Transposed: their
// transpose as the left side of one.
template <bool transposed, int pitch>
DS_DEVICE Words4 by_columns(Matrix<pitch> m, int row, int column) {
  return load_matrices<transposed>(m.at + (row + lane() % 8 + lane() / 16 * 8) * pitch + column +
                                   lane() / 8 % 2 * 8);
}

// Whether all rows of all heads lie at multiples of `bytes`. Heads are one or three widths apart, so their
// width is a multiple, too.
DS_DEVICE bool aligned(const Heads& h, uint64_t bytes) {
  const auto all = reinterpret_cast<uint64_t>(h.at.data) | static_cast<uint64_t>(2 * h.row) |
                   static_cast<uint64_t>(2 * h.head);
  return all % bytes == 0;
}

// Those of rows [first, first + kSide) of a head that have a bit in `rows`; all else is 0.
template <int depth>
DS_DEVICE void load_tile(const AttentionArgs& a, const Heads& h, int64_t first, int64_t head, uint64_t rows,
                         Tile<depth> to) {
  constexpr int kThreadsOfRow = depth / 8, kRows = static_cast<int>(kAttentionThreads) / kThreadsOfRow;
  const int own = static_cast<int>(threadIdx.x) / kThreadsOfRow,
            d = static_cast<int>(threadIdx.x) % kThreadsOfRow * 8;
  const auto* const from = static_cast<const uint16_t*>(h.at.data) + first * h.row + head * h.head + d;
  const bool wide = aligned(h, 16);
  constexpr int kAtOnce = 4;  // asked for before the first is stored
#pragma unroll 1
  for (int begin = own; begin < kSide; begin += kAtOnce * kRows) {
    uint4 eights[kAtOnce];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const int r = begin + i * kRows;
      uint4& u = eights[i];
      u = make_uint4(0, 0, 0, 0);
      if (d >= a.depth || !(rows >> r & 1)) continue;
      const uint16_t* const eight = from + r * h.row;
      if (wide) {
        u = *reinterpret_cast<const uint4*>(eight);
        continue;
      }
      uint32_t words[4] = {};
#pragma unroll
      for (int e = 0; e < 8; ++e) {
        if (d + e < a.depth) words[e / 2] |= static_cast<uint32_t>(eight[e]) << (e % 2 * 16);
      }
      u = make_uint4(words[0], words[1], words[2], words[3]);
    }
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i)
      *reinterpret_cast<uint4*>(to.at + (begin + i * kRows) * (depth + 8) + d) = eights[i];
  }
}
// Bits of those that exist.
DS_DEVICE uint64_t rows_of_tile(const AttentionArgs& a, int64_t first) {
  return a.rows - first < kSide ? (uint64_t{1} << (a.rows - first)) - 1 : ~uint64_t{0};
}
// Bits of the keys of a tile that rows of the sequence from `begin` on may see.
DS_DEVICE uint64_t keys_of_tile(const AttentionArgs& a, int64_t begin, int64_t first) {
  const auto counts = [&](int64_t key) {
    const bool there = key < a.rows && key >= begin && key < begin + a.seq;
    return there && (!a.first || begin_of(a, key) == begin) && (!a.mask || a.mask[key] != 0);
  };
  const uint32_t low = __ballot_sync(kAll, counts(first + lane())),
                 high = __ballot_sync(kAll, counts(first + lane() + 32));
  return low | static_cast<uint64_t>(high) << 32;
}
// Of these keys those that `query` sees.
DS_DEVICE uint64_t seen_by(const AttentionArgs& a, int64_t query, int64_t first, uint64_t keys) {
  const int64_t last = a.causal ? query - first : kSide - 1,
                least = a.window == 0 ? 0 : query - a.window + 1 - first;
  if (last < 0 || least >= kSide) return 0;
  if (last < kSide - 1) keys &= (uint64_t{2} << last) - 1;
  return least > 0 ? keys >> least << least : keys;
}

// Products of 16 rows of x and 8 `count` rows of y. All scores are made by this, in one order.
template <int32_t type, int depth, int count>
DS_DEVICE void products(Tile<depth> x, int row, Tile<depth> y, int column, Floats4 (&s)[count]) {
#pragma unroll
  for (int n = 0; n < count; ++n) s[n] = Floats4{};
#pragma unroll
  for (int d = 0; d < depth; d += 16) {
    const Words4 left = by_rows<false>(x, row, d);
#pragma unroll
    for (int n = 0; n < count; n += 2) {
      const Words4 right = by_columns<false>(y, column + 8 * n, d);
      add_product<type>(s[n], left, right.v[0], right.v[1]);
      add_product<type>(s[n + 1], left, right.v[2], right.v[3]);
    }
  }
}
// sums += weights (16 x 16) times 16 rows of `tile`.
template <int32_t type, int depth>
DS_DEVICE void add_rows(Floats4 (&sums)[depth / 8], const Words4& weights, Tile<depth> tile, int row) {
#pragma unroll
  for (int n = 0; n < depth / 8; n += 2) {
    const Words4 right = by_rows<true>(tile, row, 8 * n);
    add_product<type>(sums[n], weights, right.v[0], right.v[1]);
    add_product<type>(sums[n + 1], weights, right.v[2], right.v[3]);
  }
}
// Two neighbouring matrices of scores as the left side of a product.
template <int32_t type>
DS_DEVICE Words4 left_side(const Floats4& a, const Floats4& b) {
  return {{pack<type>(a.v[0], a.v[1]), pack<type>(a.v[2], a.v[3]), pack<type>(b.v[0], b.v[1]),
           pack<type>(b.v[2], b.v[3])}};
}

// Scores from products.
template <int count>
DS_DEVICE void make_scores(const AttentionArgs& a, Floats4 (&s)[count]) {
#pragma unroll
  for (int n = 0; n < count; ++n) {
#pragma unroll
    for (float& x : s[n].v) x = scaled(a, x);
  }
  if (a.cap == 0) return;
#pragma unroll
  for (int n = 0; n < count; ++n) {
#pragma unroll
    for (float& x : s[n].v) x = bent(a, x);
  }
}
// Which pairs dropout keeps, of those at columns 0, 1, 8, 9, ... from pair `number` on: a bit each.
DS_DEVICE uint64_t kept_of(const AttentionArgs& a, const Stream& stream, uint64_t number, int matrices) {
  uint64_t bits = 0;
#pragma unroll 1
  for (int n = 0; n < matrices; ++n, number += 8) {
    Words four = words_of(stream, number / 4);
    const uint64_t first = keeps(a, four, number) ? 1 : 0;
    if (number % 4 == 3) four = words_of(stream, number / 4 + 1);
    const uint64_t second = keeps(a, four, number + 1) ? 2 : 0;
    bits |= (first | second) << (8 * n);
  }
  return bits;
}

// A thread's place: rows `row` and `row` + 8 of its block's tile, columns `column` and `column` + 1 of each
// matrix of 8 columns.
struct Place {
  int row, column;
};
DS_DEVICE Place place() { return {first_of_warp() + lane() / 4, lane() % 4 * 2}; }

// Rows of the block that begins at `first`; each is divided by its divisor.
template <int32_t type, int depth>
DS_DEVICE void store_rows(const AttentionArgs& a, const Heads& to, int64_t first, int64_t head,
                          const Floats4 (&x)[depth / 8], const float (&divisor)[2]) {
  const bool pairs = to.at.dtype == type && aligned(to, 4);
  const Place own = place();
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int64_t row = first + own.row + 8 * half, at = row * to.row + head * to.head;
    if (row >= a.rows) continue;
#pragma unroll
    for (int n = 0; n < depth / 8; ++n) {
      const int d = 8 * n + own.column;
      const float low = x[n].v[2 * half] / divisor[half], high = x[n].v[2 * half + 1] / divisor[half];
      if (pairs && d < a.depth) {
        *reinterpret_cast<uint32_t*>(static_cast<uint16_t*>(to.at.data) + at + d) = pack<type>(low, high);
      } else {
        if (d < a.depth) put(to.at, at + d, low);
        if (d + 1 < a.depth) put(to.at, at + d + 1, high);
      }
    }
  }
}

// A query of a thread.
struct Query {
  int64_t row, begin;
  float lse, delta;
  bool alone;

  // One that does not exist begins nowhere.
  DS_DEVICE Query at(const AttentionArgs& a, int64_t row) {
    return {row, row < a.rows ? begin_of(a, row) : -1, 0, 0, false};
  }
  // With what backward needs of it.
  DS_DEVICE Query for_gradient(const AttentionArgs& a, int64_t row, int64_t head) {
    Query q = at(a, row);
    if (q.begin < 0) return q;
    q.lse = a.lse[head * a.rows + row], q.delta = a.delta[head * a.rows + row], q.alone = a.alone[row] != 0;
    return q;
  }
};

// What the thread's two queries see of a tile of keys.
struct Sight {
  uint64_t seen[2];

  DS_DEVICE Sight of_queries(const AttentionArgs& a, const Query (&mine)[2], int64_t begin, int64_t first,
                             uint64_t keys) {
    return {{mine[0].begin == begin ? seen_by(a, mine[0].row, first, keys) : 0,
             mine[1].begin == begin ? seen_by(a, mine[1].row, first, keys) : 0}};
  }
};
// Of `count` matrices from column `part` on.
template <int count>
DS_DEVICE uint64_t of_part(const Sight& sight, int half, int part) {
  return sight.seen[half] >> part & ((uint64_t{1} << (8 * count)) - 1);
}
DS_DEVICE bool any_of_warp(uint64_t seen) { return __ballot_sync(kAll, seen != 0) != 0; }

// The first query of a block. With a causal mask later queries see more keys, so their blocks start first;
// otherwise they would finish last, alone.
DS_DEVICE int64_t first_query(const AttentionArgs& a) {
  return static_cast<int64_t>(a.causal ? gridDim.x - 1 - blockIdx.x : blockIdx.x) * kSide;
}

template <int32_t type, int depth>
DS_DEVICE void forward(const AttentionArgs& a) {
  DS_SHARED(uint16_t, room);
  constexpr int kSize = kSide * (depth + 8);
  const Tile<depth> q{room}, k{room + kSize}, v{room + 2 * kSize};
  const int64_t first = first_query(a), head = blockIdx.y, key_head = head / a.group;
  const Place own = place();
  const Query mine[2] = {Query::at(a, first + own.row), Query::at(a, first + own.row + 8)};
  const bool dropped = drops(a);
  const Stream stream = stream_of(a);
  float top[2] = {-INFINITY, -INFINITY}, sum[2] = {};
  Floats4 y[depth / 8] = {};
  load_tile<depth>(a, a.q, first, head, rows_of_tile(a, first), q);
  each_key_tile<kSide>(a, first, [&](int64_t begin, int64_t key) {
    const uint64_t keys = keys_of_tile(a, begin, key);
    __syncthreads();  // the last tile has been read
    load_tile<depth>(a, a.k, key, key_head, keys, k);
    load_tile<depth>(a, a.v, key, key_head, keys, v);
    __syncthreads();
    const Sight sight = Sight::of_queries(a, mine, begin, key, keys);
    if (!any_of_warp(sight.seen[0] | sight.seen[1])) return;
    Floats4 s[kMatrices];
    products<type, depth>(q, first_of_warp(), k, 0, s);
    make_scores(a, s);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const uint64_t seen = sight.seen[half] >> own.column;
      float best = -INFINITY;
#pragma unroll
      for (int n = 0; n < kMatrices; ++n) {
#pragma unroll
        for (int c = 0; c < 2; ++c) {
          float& x = s[n].v[2 * half + c];
          x = seen >> (8 * n + c) & 1 ? x : -INFINITY;
          best = fmaxf(best, x);
        }
      }
      const float next = fmaxf(row_largest(best), top[half]);
      const bool nothing = sight.seen[half] == 0 && next == -INFINITY;  // not where scores are NaN
      const float base = nothing ? 0.0f : next, kept_share = nothing ? 1.0f : expf(top[half] - next);
      float added = 0;
#pragma unroll
      for (int n = 0; n < kMatrices; ++n) {
#pragma unroll
        for (int c = 0; c < 2; ++c) {
          float& weight = s[n].v[2 * half + c];
          weight = expf(weight - base);
          added += weight;
        }
      }
      if (dropped) {
        const uint64_t number = number_of(a, mine[half].row, begin, key + own.column, head);
        const uint64_t bits = kept_of(a, stream, number, kMatrices);
#pragma unroll
        for (int n = 0; n < kMatrices; ++n) {
#pragma unroll
          for (int c = 0; c < 2; ++c) s[n].v[2 * half + c] *= bits >> (8 * n + c) & 1 ? a.factor : 0.0f;
        }
      }
      sum[half] = sum[half] * kept_share + row_sum(added);
      top[half] = next;
#pragma unroll
      for (int n = 0; n < depth / 8; ++n) y[n].v[2 * half] *= kept_share, y[n].v[2 * half + 1] *= kept_share;
    }
#pragma unroll
    for (int n = 0; n < kMatrices; n += 2)
      add_rows<type, depth>(y, left_side<type>(s[n], s[n + 1]), v, 8 * n);
  });
  const float divisor[2] = {sum[0] == 0 ? 1.0f : sum[0], sum[1] == 0 ? 1.0f : sum[1]};
  store_rows<type, depth>(a, a.y, first, head, y, divisor);
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int64_t row = mine[half].row;
    if (own.column == 0 && row < a.rows)
      a.lse[head * a.rows + row] = sum[half] == 0 ? 0.0f : top[half] + logf(sum[half]);
  }
}

// What one half of a thread's rows has to do with `count` matrices from key `first` on: from scores, and
// products of dy and v, s becomes the gradient of the products of q and k, and dp the weights that dv is made
// of.
template <int count>
DS_DEVICE void pair_gradients(const AttentionArgs& a, const Query& query, uint64_t seen, int64_t first,
                              int64_t head, int half, bool dropped, const Stream& stream, Floats4 (&s)[count],
                              Floats4 (&dp)[count]) {
  const int column = place().column;
  uint64_t kept = ~uint64_t{0};
  if (dropped) kept = kept_of(a, stream, number_of(a, query.row, query.begin, first + column, head), count);
  const float factor = dropped ? a.factor : 1.0f;
  seen >>= column;
#pragma unroll
  for (int n = 0; n < count; ++n) {
#pragma unroll
    for (int c = 0; c < 2; ++c) {
      float &x = s[n].v[2 * half + c], &weight = dp[n].v[2 * half + c];
      const bool there = seen >> (8 * n + c) & 1;
      const float share = kept >> (8 * n + c) & 1 ? factor : 0.0f;
      const float p = expf(x - query.lse);
      float gradient = a.scale * p * (share * weight - query.delta);
      if (a.cap != 0) gradient *= slope_of(a, x);
      x = there && !query.alone ? gradient : 0.0f;
      weight = there ? p * share : 0.0f;
    }
  }
}

template <int32_t type, int depth>
DS_DEVICE void backward_queries(const AttentionArgs& a) {
  DS_SHARED(uint16_t, room);
  constexpr int kHalf = kMatrices / 2;  // matrices whose gradients are in registers at a time
  constexpr int kSize = kSide * (depth + 8);
  const Tile<depth> q{room}, dy{room + kSize}, k{room + 2 * kSize}, v{room + 3 * kSize};
  const int64_t first = first_query(a), head = blockIdx.y, key_head = head / a.group;
  const int row = place().row;
  const Query mine[2] = {Query::for_gradient(a, first + row, head),
                         Query::for_gradient(a, first + row + 8, head)};
  const bool dropped = drops(a);
  const Stream stream = stream_of(a);
  Floats4 dq[depth / 8] = {};
  load_tile<depth>(a, a.q, first, head, rows_of_tile(a, first), q);
  load_tile<depth>(a, a.dy, first, head, rows_of_tile(a, first), dy);
  each_key_tile<kSide>(a, first, [&](int64_t begin, int64_t key) {
    const uint64_t keys = keys_of_tile(a, begin, key);
    __syncthreads();  // the last tile has been read
    load_tile<depth>(a, a.k, key, key_head, keys, k);
    load_tile<depth>(a, a.v, key, key_head, keys, v);
    __syncthreads();
    const Sight sight = Sight::of_queries(a, mine, begin, key, keys);
#pragma unroll
    for (int part = 0; part < kSide; part += 8 * kHalf) {
      if (!any_of_warp(of_part<kHalf>(sight, 0, part) | of_part<kHalf>(sight, 1, part))) continue;
      Floats4 s[kHalf], dp[kHalf];
      products<type, depth>(q, first_of_warp(), k, part, s);
      products<type, depth>(dy, first_of_warp(), v, part, dp);
      make_scores(a, s);
#pragma unroll
      for (int half = 0; half < 2; ++half)
        pair_gradients(a, mine[half], of_part<kHalf>(sight, half, part), key + part, head, half, dropped,
                       stream, s, dp);
#pragma unroll
      for (int n = 0; n < kHalf; n += 2)
        add_rows<type, depth>(dq, left_side<type>(s[n], s[n + 1]), k, part + 8 * n);
    }
  });
  const float one[2] = {1.0f, 1.0f};
  store_rows<type, depth>(a, a.dq, first, head, dq, one);
}

// Walks a block's keys from `first` on through the queries of each of their sequences that may see one:
// f(begin of the sequence, which of the keys are its own, query head, first query of a tile).
template <typename F>
DS_DEVICE void each_query_tile(const AttentionArgs& a, int64_t first, int64_t key_head, const F& f) {
  const int64_t end = smaller(first + kSide, a.rows);
  for (int64_t row = first; row < end;) {
    const int64_t begin = begin_of(a, row);
    const int64_t behind = behind_of(a, row, begin, end);
    const int64_t low = a.causal ? row : begin;
    int64_t high = smaller(begin + a.seq, a.rows);
    if (a.window != 0) high = smaller(high, behind - 1 + a.window);
    const uint64_t keys = keys_of_tile(a, begin, first);
    for (int64_t head = key_head * a.group; head < (key_head + 1) * a.group; ++head) {
      int64_t query = begin + (low - begin) / kSide * kSide;
      for (; query < high && begin_of(a, query) == begin; query += kSide) f(begin, keys, head, query);
    }
    row = behind;
  }
}

template <int32_t type, int depth>
DS_DEVICE void backward_keys(const AttentionArgs& a) {
  DS_SHARED(uint16_t, room);
  constexpr int kFew = depth == 64 ? 4 : 2;  // matrices whose gradients are in registers at a time
  constexpr int kSize = kSide * (depth + 8), kPitch = kSide + 8;
  const Tile<depth> k{room}, v{room + kSize}, q{room + 2 * kSize}, dy{room + 3 * kSize};
  const Matrix<kPitch> weights{room + 4 * kSize}, gradients{weights.at + kSide * kPitch};
  const int64_t first = static_cast<int64_t>(blockIdx.x) * kSide, key_head = blockIdx.y;
  const Place own = place();
  const bool dropped = drops(a);
  const Stream stream = stream_of(a);
  Floats4 dk[depth / 8] = {}, dv[depth / 8] = {};
  load_tile<depth>(a, a.k, first, key_head, rows_of_tile(a, first), k);
  load_tile<depth>(a, a.v, first, key_head, rows_of_tile(a, first), v);
  each_query_tile(a, first, key_head, [&](int64_t begin, uint64_t keys, int64_t head, int64_t tile) {
    const uint64_t queries = rows_of_tile(a, tile);
    const Query mine[2] = {Query::for_gradient(a, tile + own.row, head),
                           Query::for_gradient(a, tile + own.row + 8, head)};
    __syncthreads();  // the last tile has been read
    load_tile<depth>(a, a.q, tile, head, queries, q);
    load_tile<depth>(a, a.dy, tile, head, queries, dy);
    __syncthreads();
    const Sight sight = Sight::of_queries(a, mine, begin, first, keys);
#pragma unroll 1
    for (int part = 0; part < kSide; part += 8 * kFew) {
      Floats4 s[kFew] = {}, dp[kFew] = {};
      const bool any = any_of_warp(of_part<kFew>(sight, 0, part) | of_part<kFew>(sight, 1, part));
      if (any) {
        products<type, depth>(q, first_of_warp(), k, part, s);
        products<type, depth>(dy, first_of_warp(), v, part, dp);
        make_scores(a, s);
      }
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int row = own.row + 8 * half;
        if (any)
          pair_gradients(a, mine[half], of_part<kFew>(sight, half, part), first + part, head, half, dropped,
                         stream, s, dp);
#pragma unroll
        for (int n = 0; n < kFew; ++n) {
          const int at = row * kPitch + part + 8 * n + own.column;
          *reinterpret_cast<uint32_t*>(weights.at + at) =
              pack<type>(dp[n].v[2 * half], dp[n].v[2 * half + 1]);
          *reinterpret_cast<uint32_t*>(gradients.at + at) =
              pack<type>(s[n].v[2 * half], s[n].v[2 * half + 1]);
        }
      }
    }
    __syncthreads();
#pragma unroll 1
    for (int row = 0; row < kSide && tile + row < a.rows; row += 16) {
      add_rows<type, depth>(dv, by_columns<true>(weights, row, first_of_warp()), dy, row);
      add_rows<type, depth>(dk, by_columns<true>(gradients, row, first_of_warp()), q, row);
    }
  });
  const float one[2] = {1.0f, 1.0f};
  store_rows<type, depth>(a, a.dk, first, key_head, dk, one);
  store_rows<type, depth>(a, a.dv, first, key_head, dv, one);
}

}  // namespace

DS_BLOCK_KERNEL(attention_bf16_64, AttentionArgs, kAttentionThreads) { forward<DS_DTYPE_BF16, 64>(a); }
DS_BLOCK_KERNEL(attention_dq_bf16_64, AttentionArgs, kAttentionThreads) {
  backward_queries<DS_DTYPE_BF16, 64>(a);
}
DS_BLOCK_KERNEL(attention_dkv_bf16_64, AttentionArgs, kAttentionThreads) {
  backward_keys<DS_DTYPE_BF16, 64>(a);
}
DS_BLOCK_KERNEL(attention_bf16_128, AttentionArgs, kAttentionThreads) { forward<DS_DTYPE_BF16, 128>(a); }
DS_BLOCK_KERNEL(attention_dq_bf16_128, AttentionArgs, kAttentionThreads) {
  backward_queries<DS_DTYPE_BF16, 128>(a);
}
DS_BLOCK_KERNEL(attention_dkv_bf16_128, AttentionArgs, kAttentionThreads) {
  backward_keys<DS_DTYPE_BF16, 128>(a);
}
DS_BLOCK_KERNEL(attention_f16_64, AttentionArgs, kAttentionThreads) { forward<DS_DTYPE_F16, 64>(a); }
DS_BLOCK_KERNEL(attention_dq_f16_64, AttentionArgs, kAttentionThreads) {
  backward_queries<DS_DTYPE_F16, 64>(a);
}
DS_BLOCK_KERNEL(attention_dkv_f16_64, AttentionArgs, kAttentionThreads) {
  backward_keys<DS_DTYPE_F16, 64>(a);
}
DS_BLOCK_KERNEL(attention_f16_128, AttentionArgs, kAttentionThreads) { forward<DS_DTYPE_F16, 128>(a); }
DS_BLOCK_KERNEL(attention_dq_f16_128, AttentionArgs, kAttentionThreads) {
  backward_queries<DS_DTYPE_F16, 128>(a);
}
DS_BLOCK_KERNEL(attention_dkv_f16_128, AttentionArgs, kAttentionThreads) {
  backward_keys<DS_DTYPE_F16, 128>(a);
}

}  // namespace ds::cuda
