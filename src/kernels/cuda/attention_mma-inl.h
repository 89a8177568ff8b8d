#pragma once
// The building blocks of attention on tensor cores: tiles of rows in shared memory, their products,
// bit masks of the keys to which queries attend, and bit masks of the pairs that dropout keeps.
// Included by attention_mma.cu only.
//
// A set of rows of a 64-row tile is a 64-bit word, so that masks, documents, windows and causality
// are combined with a few integer instructions for each row instead of tests for each pair.
#include <cstdint>

#include "kernels/cuda/attention-inl.h"
#include "kernels/cuda/attention.h"
#include "kernels/cuda/device.h"
#include "kernels/cuda/mma.h"

namespace ds::cuda {

// The number of rows of a tile.
constexpr int kSide = kMmaTile;
// The number of rows of the left operand of one mma instruction.
constexpr int kStrip = 16;
// The number of 8-column matrices across a tile.
constexpr int kMatrices = kSide / 8;

// Indices of rows, and offsets within a row, have 32 bits here, which saves registers.
// attention.cpp selects these kernels only for operands whose extents fit.
DS_DEVICE int count_of(const AttentionArgs& a) { return static_cast<int>(a.rows); }
DS_DEVICE int window_of(const AttentionArgs& a) { return static_cast<int>(a.window); }
// Returns the end of the sequence that begins at `begin`, assuming that the sequence has full
// length.
DS_DEVICE int end_of(const AttentionArgs& a, int begin) {
  return smaller(begin + static_cast<int>(a.seq), count_of(a));
}

DS_DEVICE int lane() { return static_cast<int>(threadIdx.x % kWarp); }
DS_DEVICE int warp() { return static_cast<int>(threadIdx.x / kWarp); }

// A tile of kSide rows of `depth` 16-bit elements in shared memory. With kMoved, groups of eight
// elements are permuted within a row; otherwise rows are padded (see mma_pitch()).
template <int depth>
struct Tile {
  static constexpr int kPitch = mma_pitch(depth), kSize = kSide * kPitch;
  static constexpr bool kMoved = kPitch == depth;
  uint16_t* at;
};
// Returns the address of group `eight` + `more` (of eight columns) in row `row` + `own`. Row and
// group are passed in two parts so that the permutation, an exclusive or with the last three bits
// of the row, is computed once, outside of loops. `row` must be a multiple of 8 and `eight` of 2;
// `more` is 0 or 1, or `eight` is 0.
template <int depth>
DS_DEVICE uint16_t* eight_at(Tile<depth> m, int row, int own, int eight, int more) {
  if constexpr (m.kMoved) return m.at + (row + own) * m.kPitch + (eight ^ more ^ own % 8) * 8;
  return m.at + (row + own) * m.kPitch + (eight + more) * 8;
}

// Loads 16 x 16 elements as the left operand of a product or, if transposed, as the right operands
// of two products of 8 columns each.
template <bool transposed, int depth>
DS_DEVICE Words4 by_rows(Tile<depth> m, int row, int column) {
  return load_matrices<transposed>(eight_at(m, row, lane() % 16, column / 8, lane() / 16));
}
// Loads 16 x 16 elements whose rows become the columns of the right operands of two products.
template <int depth>
DS_DEVICE Words4 by_columns(Tile<depth> m, int row, int column) {
  return load_matrices<false>(
      eight_at(m, row, lane() % 8 + lane() / 16 * 8, column / 8, lane() / 8 % 2));
}

// Returns whether all rows of all heads begin at multiples of `bytes`. The distance of heads is one
// or three times their width, so the width is a multiple, too.
DS_DEVICE bool aligned(const Heads& h, uint64_t bytes) {
  const auto all = reinterpret_cast<uint64_t>(h.at.data) | static_cast<uint64_t>(2 * h.row) |
                   static_cast<uint64_t>(2 * h.head);
  return all % bytes == 0;
}

// Loads eight elements one by one. Elements from `count` on are 0.
DS_DEVICE uint4 gather_eight(const uint16_t* from, int count) {
  uint32_t words[4] = {};
#pragma unroll
  for (int e = 0; e < 8; ++e) {
    if (e < count) words[e / 2] |= static_cast<uint32_t>(from[e]) << (e % 2 * 16);
  }
  return make_uint4(words[0], words[1], words[2], words[3]);
}
// The part of an operand that a thread copies: eight columns of every kRows-th row of a head.
template <int depth>
struct Source {
  static constexpr int kThreadsOfRow = depth / 8,
                       kRows = static_cast<int>(kAttentionThreads) / kThreadsOfRow;
  // The address of the thread's first element: row own(), group eight(), head 0.
  const uint16_t* from;
  int row, head;
  // Whether rows are 16-byte aligned, so that cp.async can copy them.
  bool whole;

  DS_DEVICE int own() { return static_cast<int>(threadIdx.x) / kThreadsOfRow; }
  DS_DEVICE int eight() { return static_cast<int>(threadIdx.x) % kThreadsOfRow; }
  DS_DEVICE Source of(const Heads& h) {
    const auto* const at = static_cast<const uint16_t*>(h.at.data);
    const int row = static_cast<int>(h.row);
    return {at + int64_t{own()} * row + 8 * eight(), row, static_cast<int>(h.head), aligned(h, 16)};
  }
};
// Starts the copy of rows [first, first + kSide) of a head to a tile. Rows whose bit in `rows` is
// 0, and columns from a.depth on, become 0. The tile is complete after every thread has called
// await_copies() and __syncthreads().
template <int depth>
DS_DEVICE void ask_for_tile(const AttentionArgs& a, const Source<depth>& source, int first,
                            int head, uint64_t rows, Tile<depth> to) {
  constexpr int kRows = Source<depth>::kRows;
  // The indices of a thread's rows are equal modulo 8, so the permutation moves its group of eight
  // columns to the same place in each row.
  static_assert(kRows % 8 == 0 || !Tile<depth>::kMoved);
  const int own = Source<depth>::own(), count = a.depth - 8 * Source<depth>::eight();
  uint16_t* at = eight_at(to, 0, own, 0, Source<depth>::eight());
  const uint16_t* from = source.from + int64_t{first} * source.row + int64_t{head} * source.head;
  if (count <= 0) rows = 0;
  if (!source.whole) {
#pragma unroll 1
    for (int r = own; r < kSide;
         r += kRows, from += int64_t{kRows} * source.row, at += kRows * to.kPitch)
      *reinterpret_cast<uint4*>(at) = gather_eight(from, rows >> r & 1 ? count : 0);
    return;
  }
  const uint32_t halves[2] = {static_cast<uint32_t>(rows) >> own,
                              static_cast<uint32_t>(rows >> 32) >> own};
#pragma unroll
  for (int r = 0; r < kSide;
       r += kRows, from += int64_t{kRows} * source.row, at += kRows * to.kPitch)
    copy_ahead(at, from, halves[r / 32] >> (r % 32) & 1);
}

// Returns a word whose lowest n bits are set.
template <typename Bits = uint64_t>
DS_DEVICE Bits lowest(int n) {
  if (n >= 8 * static_cast<int>(sizeof(Bits))) return ~Bits{0};
  return n <= 0 ? 0 : (Bits{1} << n) - 1;
}
// Returns a bit for each row of the tile at `first`: the result of counts(row).
template <typename F>
DS_DEVICE uint64_t rows_where(int first, const F& counts) {
  const uint32_t low = __ballot_sync(kAll, counts(first + lane())),
                 high = __ballot_sync(kAll, counts(first + lane() + 32));
  return low | static_cast<uint64_t>(high) << 32;
}
// Returns the bits of the tile's rows that exist.
DS_DEVICE uint64_t rows_of_tile(const AttentionArgs& a, int first) {
  return lowest(count_of(a) - first);
}
// Returns the bits of the tile's rows that belong to the sequence that begins at `begin`.
DS_DEVICE uint64_t rows_of_sequence(const AttentionArgs& a, int begin, int first) {
  uint64_t rows = lowest(end_of(a, begin) - first);
  if (first < begin) rows &= ~lowest(begin - first);
  if (!a.first) return rows;
  return rows &
         rows_where(first, [&](int row) { return row < count_of(a) && begin_of(a, row) == begin; });
}
// Returns the bits of the tile's keys to which queries of the sequence that begins at `begin` may
// attend. These keys are rows of the sequence that are not masked.
DS_DEVICE uint64_t keys_of_tile(const AttentionArgs& a, int begin, int first) {
  const uint64_t rows = rows_of_sequence(a, begin, first);
  if (!a.mask) return rows;
  return rows & rows_where(first, [&](int row) { return row < count_of(a) && a.mask[row] != 0; });
}
DS_DEVICE bool is_of_sequence(const AttentionArgs& a, int row, int begin) {
  if (row < begin || row >= end_of(a, begin)) return false;
  return !a.first || begin_of(a, row) == begin;
}
// seen_by() returns the bits of those `keys`, in the sequence that begins at `begin`, to which
// `query` attends. seen_from() returns the bits of those `queries` that attend to `key`. Bit 0 is
// for row `first`.
template <typename Bits>
DS_DEVICE Bits seen_by(const AttentionArgs& a, int query, int begin, int first, Bits keys) {
  if (!is_of_sequence(a, query, begin)) return 0;
  if (a.causal) keys &= lowest<Bits>(query + 1 - first);
  return a.window == 0 ? keys : keys & ~lowest<Bits>(query - window_of(a) + 1 - first);
}
template <typename Bits>
DS_DEVICE Bits seen_from(const AttentionArgs& a, int key, int first, Bits queries) {
  if (a.causal) queries &= ~lowest<Bits>(key - first);
  return a.window == 0 ? queries : queries & lowest<Bits>(key + window_of(a) - first);
}

// Consecutive rows, including `last`.
struct Span {
  int first, last;
};
// all_in_sight() returns whether causality and the window let every query attend to every key;
// none_in_sight() returns whether they let no query attend to any key. Both spans are of the same
// sequence.
DS_DEVICE bool all_in_sight(const AttentionArgs& a, Span queries, Span keys) {
  return (!a.causal || keys.last <= queries.first) &&
         (a.window == 0 || keys.first > queries.last - window_of(a));
}
DS_DEVICE bool none_in_sight(const AttentionArgs& a, Span queries, Span keys) {
  return (a.causal && keys.first > queries.last) ||
         (a.window != 0 && keys.last <= queries.first - window_of(a));
}

// The queries of a warp, and the first rows of the sequences of its first and its last query.
struct Queries {
  Span rows, begins;

  DS_DEVICE Queries of(const AttentionArgs& a, int first, int count) {
    const Span rows{first, first + count - 1};
    if (first >= count_of(a)) return {rows, {1, 0}};
    return {rows, {begin_of(a, first), begin_of(a, smaller(rows.last, count_of(a) - 1))}};
  }
  // all_see() returns whether every query may attend to all of these keys, of the sequence that
  // begins at `begin`; none_sees() returns whether no query may attend to any of them. The result
  // is the same for all threads of the warp, so branches on it do not diverge.
  DS_DEVICE bool all_see(const AttentionArgs& a, const Queries& q, int begin, Span keys) {
    return q.rows.last < count_of(a) && q.begins.first == begin && q.begins.last == begin &&
           all_in_sight(a, q.rows, keys);
  }
  DS_DEVICE bool none_sees(const AttentionArgs& a, const Queries& q, int begin, Span keys) {
    return begin < q.begins.first || begin > q.begins.last || none_in_sight(a, q.rows, keys);
  }
};

// An iterator over the tiles of keys to which the queries [row, end) may attend, sequence by
// sequence. Tiles are counted from the sequence's first row.
struct KeyTiles {
  // The current sequence (the first row after it or `end`, and its first row), the first key of the
  // current tile, or -1 at the end, and the end of the keys of the sequence.
  int behind, begin, key, last;

  DS_DEVICE bool there(const KeyTiles& t) { return t.key >= 0; }
  DS_DEVICE KeyTiles of(const AttentionArgs& a, int row, int end) {
    KeyTiles t{row, 0, row < end ? 0 : -1, 0};
    if (!there(t)) return t;
    t.begin = begin_of(a, row);
    t.behind = behind_of(a, row, t.begin, end);
    t.last = a.causal ? t.behind : end_of(a, t.begin);
    const int low = a.window == 0 ? t.begin : larger(t.begin, row - window_of(a) + 1);
    t.key = t.begin + (low - t.begin) / kSide * kSide;
    return t;
  }
  DS_DEVICE KeyTiles after(const AttentionArgs& a, KeyTiles t, int end) {
    t.key += kSide;
    return t.key < t.last ? t : of(a, t.behind, end);
  }
};

// An iterator over the tiles of queries that may attend to one of the keys [first, end): by
// sequence, then by query head of the key head, then by tile. Tiles are counted from the sequence's
// first row.
struct QueryTiles {
  int first, end, key_head;
  // The current sequence (the first row after it or `end`, and its first row), the query head, and
  // the first query of the current tile, or -1 at the end.
  int behind, begin, head, query;

  DS_DEVICE bool there(const QueryTiles& t) { return t.query >= 0; }
  DS_DEVICE QueryTiles of(const AttentionArgs& a, int first, int end, int key_head) {
    QueryTiles t{first, end, key_head, first, 0, 0, -1};
    return next_sequence(a, t);
  }
  DS_DEVICE QueryTiles after(const AttentionArgs& a, QueryTiles t) {
    t.query += kSide;
    const bool in_sight = a.window == 0 || t.query < t.behind - 1 + window_of(a);
    if (in_sight && is_of_sequence(a, t.query, t.begin)) return t;
    t.query = lowest_query(a, t);
    return ++t.head < (t.key_head + 1) * a.group ? t : next_sequence(a, t);
  }

 private:
  DS_DEVICE int lowest_query(const AttentionArgs& a, const QueryTiles& t) {
    return a.causal ? t.begin + larger(t.first - t.begin, 0) / kSide * kSide : t.begin;
  }
  DS_DEVICE QueryTiles next_sequence(const AttentionArgs& a, QueryTiles t) {
    t.query = -1;
    if (t.behind >= t.end) return t;
    t.begin = begin_of(a, t.behind);
    t.behind = behind_of(a, t.behind, t.begin, t.end);
    t.head = t.key_head * a.group;
    t.query = lowest_query(a, t);
    return t;
  }
};

// Iterate over a thread's accumulators. Value 2 * half + c of matrix n of strip m belongs to row
// `half` of the thread's two rows of the strip. each_row() calls f(m, half) for the rows,
// each_of_row() calls f(n, c) for the elements of a row, and each_element() calls f(m, half, n, c)
// for all, neighbouring columns one after the other.
template <int strips, typename F>
DS_DEVICE void each_row(const F& f) {
#pragma unroll
  for (int m = 0; m < strips; ++m) f(m, 0), f(m, 1);
}
template <int count, typename F>
DS_DEVICE void each_of_row(const F& f) {
#pragma unroll
  for (int n = 0; n < count; ++n) f(n, 0), f(n, 1);
}
template <int strips, int count, typename F>
DS_DEVICE void each_element(const F& f) {
#pragma unroll
  for (int m = 0; m < strips; ++m) {
    each_of_row<count>([&](int n, int c) { f(m, 0, n, c), f(m, 1, n, c); });
  }
}

// A warp's rows of a tile, from `row` on, as left operands of products. With `held` they are kept
// in registers; otherwise they are read from shared memory for each product.
template <int depth, int strips, bool held>
struct Left {
  Tile<depth> tile;
  int row;
  Words4 words[held ? strips : 1][held ? depth / 16 : 1];

  DS_DEVICE Left of(Tile<depth> tile, int row) {
    Left x{tile, row, {}};
#pragma unroll
    for (int m = 0; held && m < strips; ++m) {
#pragma unroll
      for (int d = 0; d < depth; d += 16)
        x.words[m][d / 16] = by_rows<false>(tile, row + m * kStrip, d);
    }
    return x;
  }
  DS_DEVICE Words4 at(const Left& x, int m, int d) {
    if constexpr (held) return x.words[m][d / 16];
    return by_rows<false>(x.tile, x.row + m * kStrip, d);
  }
};

// Sets s to the dot products of the rows of `left` and 8 * count rows of y, from `row` on.
template <int32_t type, int depth, int strips, bool held, int count>
DS_DEVICE void products(const Left<depth, strips, held>& left, Tile<depth> y, int row,
                        Floats4 (&s)[strips][count]) {
#pragma unroll
  for (int m = 0; m < strips; ++m) {
#pragma unroll
    for (int n = 0; n < count; ++n) s[m][n] = Floats4{};
  }
#pragma unroll
  for (int d = 0; d < depth; d += 16) {
    Words4 x[strips];
#pragma unroll
    for (int m = 0; m < strips; ++m) x[m] = Left<depth, strips, held>::at(left, m, d);
#pragma unroll
    for (int n = 0; n < count; n += 2) {
      const Words4 right = by_columns(y, row + 8 * n, d);
#pragma unroll
      for (int m = 0; m < strips; ++m) {
        add_product<type>(s[m][n], x[m], right.v[0], right.v[1]);
        add_product<type>(s[m][n + 1], x[m], right.v[2], right.v[3]);
      }
    }
  }
}
// Adds `weights` times the tile's rows, from `row` on, to `sums`. The accumulator layout of two
// neighbouring 8-column matrices is the layout of a left operand, so threads need not exchange
// weights.
template <int32_t type, int depth, int strips, int count>
DS_DEVICE void add_rows(Floats4 (&sums)[strips][depth / 8], const Floats4 (&weights)[strips][count],
                        Tile<depth> tile, int row) {
#pragma unroll
  for (int k = 0; k < count; k += 2) {
    Words4 left[strips];
#pragma unroll
    for (int m = 0; m < strips; ++m) {
      const Floats4 &a = weights[m][k], &b = weights[m][k + 1];
      left[m] = {{pack<type>(a.v[0], a.v[1]), pack<type>(a.v[2], a.v[3]),
                  pack<type>(b.v[0], b.v[1]), pack<type>(b.v[2], b.v[3])}};
    }
#pragma unroll
    for (int n = 0; n < depth / 8; n += 2) {
      const Words4 right = by_rows<true>(tile, row + 8 * k, 8 * n);
#pragma unroll
      for (int m = 0; m < strips; ++m) {
        add_product<type>(sums[m][n], left[m], right.v[0], right.v[1]);
        add_product<type>(sums[m][n + 1], left[m], right.v[2], right.v[3]);
      }
    }
  }
}

constexpr float kLn2 = 0.693147180559945309417f;
// Returns the factor that turns a dot product of q and k (or, with a cap, a capped score) into an
// exponent of 2.
DS_DEVICE float unit_of(const AttentionArgs& a) {
  return a.cap == 0 ? __fmul_rn(a.scale, kLog2OfE) : kLog2OfE;
}

// Computes which pairs of `rows` queries and a tile's keys dropout keeps: two 32-bit words for each
// query. The first random word of such a mask may be inside a block of four random words, so the
// loop starts up to three words early and shifts.
DS_DEVICE void draw_kept(const AttentionArgs& a, int query, int rows, int begin, int key, int head,
                         uint32_t* bits) {
  const Stream stream = stream_of(a);
  for (int i = static_cast<int>(threadIdx.x); i < 2 * rows;
       i += static_cast<int>(kAttentionThreads)) {
    const uint64_t number = number_of(a, query + i / 2, begin, key + i % 2 * 32, head);
    // Bit n is for key n of this half of the tile.
    uint32_t kept = 0;
#pragma unroll 1
    for (int n = -static_cast<int>(number % 4); n < 32; n += 4) {
      const Words four = words_of(stream, (number + static_cast<uint64_t>(int64_t{n})) / 4);
      uint32_t bits_of_four = 0;
#pragma unroll
      for (int w = 0; w < 4; ++w) bits_of_four |= (uniform01(four.v[w]) >= a.share ? 1u : 0u) << w;
      kept |= n < 0 ? bits_of_four >> -n : bits_of_four << n;
    }
    bits[i] = kept;
  }
}
// both() combines the two words of a query into one. kept_from() returns the bits of one word from
// key `key` on, or all ones if there is no dropout.
DS_DEVICE uint64_t both(const uint32_t* words) {
  return words[0] | static_cast<uint64_t>(words[1]) << 32;
}
DS_DEVICE uint32_t kept_from(bool dropped, const uint32_t* words, int key) {
  return dropped ? words[key / 32] >> (key % 32) : ~0u;
}

// The values of a query that backward needs: lse as an exponent of 2, dy . y times the scale, and
// the factors of the dot products of q and k (unit) and of dy and v (scale). If the row attends to
// one key only, or does not exist, all four are 0: then the weight is exactly 1 and the gradient of
// the score exactly 0.
struct alignas(kOfQueryFloats * sizeof(float)) OfQuery {
  float lse, delta, unit, scale;

  DS_DEVICE OfQuery* all(const AttentionArgs& a, int row, int64_t head) {
    return reinterpret_cast<OfQuery*>(a.queries) + head * a.rows + row;
  }
  DS_DEVICE void put(const AttentionArgs& a, int row, int64_t head, float delta) {
    const float lse = a.lse[head * a.rows + row];
    *all(a, row, head) = sees_one(a, row)
                             ? OfQuery{0, 0, 0, 0}
                             : OfQuery{lse * kLog2OfE, delta * a.scale, unit_of(a), a.scale};
  }
  DS_DEVICE OfQuery at(const AttentionArgs& a, int row, int64_t head) {
    return row < count_of(a) ? *all(a, row, head) : OfQuery{0, 0, 0, 0};
  }
  // Starts the copy of the OfQuery of a tile's queries, as ask_for_tile() does.
  DS_DEVICE void ask(const AttentionArgs& a, int first, int64_t head, OfQuery* to) {
    const int own = static_cast<int>(threadIdx.x);
    if (own < kSide) copy_ahead(to + own, all(a, first + own, head), first + own < count_of(a));
  }
};

// The elements of an accumulator that a thread holds: rows `row` and `row` + 8, columns `column`
// and `column` + 1 of each matrix.
struct Place {
  int row, column;
};
DS_DEVICE Place place() { return {lane() / 4, lane() % 4 * 2}; }

// Stores the thread's two rows of the strip that begins at row `first`, each multiplied by its
// factor. Pairs of columns are stored as one word if type and alignment allow it.
template <int32_t type, int depth>
DS_DEVICE void store_rows(const AttentionArgs& a, const Heads& to, int first, int64_t head,
                          const Floats4 (&x)[depth / 8], const float (&factor)[2]) {
  const bool pairs = to.at.dtype == type && aligned(to, 4);
  const Place own = place();
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int row = first + own.row + 8 * half;
    const int64_t at = row * to.row + head * to.head;
    if (row >= count_of(a)) continue;
#pragma unroll
    for (int n = 0; n < depth / 8; ++n) {
      const int d = 8 * n + own.column;
      const float low = x[n].v[2 * half] * factor[half], high = x[n].v[2 * half + 1] * factor[half];
      if (pairs && d < a.depth) {
        *reinterpret_cast<uint32_t*>(static_cast<uint16_t*>(to.at.data) + at + d) =
            pack<type>(low, high);
      } else {
        if (d < a.depth) put(to.at, at + d, low);
        if (d + 1 < a.depth) put(to.at, at + d + 1, high);
      }
    }
  }
}

}  // namespace ds::cuda
