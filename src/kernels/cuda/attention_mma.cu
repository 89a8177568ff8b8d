// Attention for bf16 or f16 operands and heads of at most 128 columns, on tensor cores. These
// compute the products; scores, weights and sums are f32. kernels/cuda/attention.cu has the kernels
// for all other operands.
//
// A block has four warps and processes a tile of queries or, for dk and dv, of keys. A warp has one
// or two strips of 16 of these rows as the left operand of its products. Tiles of 64 keys, or
// queries, pass through shared memory: the next tile is copied while the current one is processed,
// and one barrier for each tile ensures both that the next tile has arrived and that the current
// one has been read (mma.h describes how a warp holds a matrix). The layout of a warp's scores is
// already that of the left operand of the next product; for dk and dv this holds because their
// scores are computed with keys as the left operand (Dao, "FlashAttention-2", arXiv:2307.08691).
// For those products, weights and gradients of scores are rounded to the type of the operands
// (kernels/accuracy.h allows for it). In f16 a gradient beyond 65,504 becomes infinite, which a
// loss scaler notices.
//
// Exponentials are powers of 2: scores are also multiplied by log2(e). Only lse is a natural
// logarithm.
//
// The bits of a row depend only on its own sequence. Tiles are counted from the sequence's first
// row, wherever the sequence is in the batch, so that a product always adds up the same 16 keys, or
// queries, at a time. A query that does not attend to a key gives it weight 0, which changes no bit
// of a finite sum. In the common case that all queries of a warp attend to all keys of a tile,
// pairs are not tested one by one; they have the same bits either way. Masked keys are 0 in a tile,
// whatever they are in memory, and so are queries of other sequences. There are no atomics.
//
// If a row attends to one key only, its weight is exactly 1. Forward subtracts a score from itself.
// In backward, lse is rounded and dy . y is added up in another order, so such a query gets special
// values (OfQuery) that make the weight 1 and the gradient of its score 0.
//
// Cost: a block waits in turn for shared memory, tensor cores and exponentials, so several blocks
// must be resident on a multiprocessor to fill the gaps: two for heads of 64 columns, and on sm_90
// also for heads of 128. Entries without dropout and cap need no registers for them, which on sm_90
// leaves room for three blocks of dk and dv at 64 columns. A tile on the causal diagonal needs only
// additional selections, not branches.
#include "kernels/cuda/attention_mma-inl.h"

namespace ds::cuda {
namespace {

// Returns the first query of a block of `rows` queries. With a causal mask, later queries attend to
// more keys, so their blocks start first; otherwise they would still run when all others have
// finished.
DS_DEVICE int first_query(const AttentionArgs& a, int rows) {
  return static_cast<int>(a.causal ? gridDim.x - 1 - blockIdx.x : blockIdx.x) * rows;
}

// The keys and values that a block processes: two stages of shared memory, each with a tile of keys
// and a tile of values. They are followed by the dropout masks of each stage.
template <int depth>
struct Stages {
  uint16_t* at;
  // The first query of the block, the number of its queries, and the heads of queries and keys.
  int first, rows, head, key_head;
  Source<depth> k, v;

  static constexpr int kSize = Tile<depth>::kSize;
  DS_DEVICE Stages of(const AttentionArgs& a, uint16_t* at, int first, int rows, int head) {
    return {at, first, rows, head, head / a.group, Source<depth>::of(a.k), Source<depth>::of(a.v)};
  }
  DS_DEVICE Tile<depth> keys(const Stages& s, int stage) { return {s.at + 2 * stage * kSize}; }
  DS_DEVICE Tile<depth> values(const Stages& s, int stage) {
    return {s.at + (2 * stage + 1) * kSize};
  }
  DS_DEVICE uint32_t* kept(const Stages& s, int stage, int row) {
    return reinterpret_cast<uint32_t*>(s.at + 4 * kSize) + 2 * (stage * s.rows + row);
  }
  // Starts the copy of a tile to a stage. Returns the bits of its keys to which queries of the
  // sequence may attend.
  template <bool any>
  DS_DEVICE uint64_t ask(const Stages& s, const AttentionArgs& a, const KeyTiles& tile, int stage) {
    const uint64_t rows = keys_of_tile(a, tile.begin, tile.key);
    ask_for_tile<depth>(a, s.k, tile.key, s.key_head, rows, keys(s, stage));
    ask_for_tile<depth>(a, s.v, tile.key, s.key_head, rows, values(s, stage));
    if (any && drops(a))
      draw_kept(a, s.first, s.rows, tile.begin, tile.key, s.head, kept(s, stage, 0));
    return rows;
  }
};

// The running results of a thread for its rows: the sums of weighted values, the largest exponent,
// and the sum of the weights relative to it. Four threads share a row, and each adds up its own
// weights only.
template <int depth, int strips>
struct Sums {
  Floats4 y[strips][depth / 8];
  float top[strips][2], weight[strips][2];
};
// Turns the exponents of one of the thread's rows into weights, and rescales the sums to the new
// maximum. `nothing` is true if the row attends to none of the keys.
template <int depth, int strips>
DS_DEVICE void weigh(Sums<depth, strips>& sums, int m, int half, bool nothing,
                     Floats4 (&s)[kMatrices]) {
  float best = -INFINITY;
#pragma unroll
  for (int n = 0; n < kMatrices; ++n)
    best = fmaxf(best, fmaxf(s[n].v[2 * half], s[n].v[2 * half + 1]));
  const float top = sums.top[m][half], next = fmaxf(row_largest(best), top);
  // The maximum of a row whose scores are NaN is -inf, too, but its NaN must not become 0.
  const bool empty = nothing && next == -INFINITY;
  const float base = empty ? 0.0f : next, kept_share = empty ? 1.0f : power_of_2(top - next);
  float added = 0;
#pragma unroll
  for (int n = 0; n < kMatrices; ++n) {
#pragma unroll
    for (int c = 0; c < 2; ++c) {
      float& weight = s[n].v[2 * half + c];
      weight = power_of_2(weight - base);
      added += weight;
    }
  }
  sums.weight[m][half] = fused(sums.weight[m][half], kept_share, added);
  sums.top[m][half] = next;
#pragma unroll
  for (int n = 0; n < depth / 8; ++n)
    sums.y[m][n].v[2 * half] *= kept_share, sums.y[m][n].v[2 * half + 1] *= kept_share;
}

// Computes y and lse of a block's queries. `any` is true if the entry supports dropout and a cap.
template <int32_t type, int depth, bool any>
DS_DEVICE void forward(const AttentionArgs& a) {
  DS_SHARED(uint16_t, room);
  constexpr int strips = strips_of(depth), kRows = strips * kSide, kSize = Tile<depth>::kSize;
  const Tile<depth> q{room};
  const int first = first_query(a, kRows), head = static_cast<int>(blockIdx.y);
  const auto stages = Stages<depth>::of(a, room + strips * kSize, first, kRows, head);
  const int warp_row = warp() * strips * kStrip, own_row = warp_row + place().row,
            column = place().column;
  const Queries mine = Queries::of(a, first + warp_row, strips * kStrip);
  const float unit = unit_of(a);
  const auto source = Source<depth>::of(a.q);
#pragma unroll
  for (int m = 0; m < strips; ++m) {
    const int row = first + m * kSide;
    ask_for_tile<depth>(a, source, row, head, rows_of_tile(a, row), {q.at + m * kSize});
  }
  const int end = smaller(first + kRows, count_of(a));
  KeyTiles tiles = KeyTiles::of(a, first, end);
  uint64_t next_keys = Stages<depth>::template ask<any>(stages, a, tiles, 0);
  await_copies();
  __syncthreads();
  // Queries are kept in registers, unless the entry needs the registers for dropout and the cap.
  const auto queries = Left<depth, strips, !any>::of(q, warp_row);
  Sums<depth, strips> sums{};
#pragma unroll
  for (int m = 0; m < strips; ++m) sums.top[m][0] = sums.top[m][1] = -INFINITY;
#pragma unroll 1
  for (int stage = 0; KeyTiles::there(tiles); stage ^= 1) {
    const int begin = tiles.begin, key = tiles.key;
    const uint64_t keys = next_keys;
    tiles = KeyTiles::after(a, tiles, end);
    if (KeyTiles::there(tiles))
      next_keys = Stages<depth>::template ask<any>(stages, a, tiles, stage ^ 1);
    if (!Queries::none_sees(a, mine, begin, {key, key + kSide - 1})) {
      Floats4 s[strips][kMatrices];
      products<type>(queries, Stages<depth>::keys(stages, stage), 0, s);
      if (any && a.cap != 0) {
        each_element<strips, kMatrices>([&](int m, int half, int n, int c) {
          float& x = s[m][n].v[2 * half + c];
          x = bent(a, scaled(a, x));
        });
      }
      each_element<strips, kMatrices>([&](int m, int half, int n, int c) {
        float& x = s[m][n].v[2 * half + c];
        x = __fmul_rn(unit, x);
      });
      bool nothing[strips][2] = {};
      // If some query does not attend to some key, the exponent of this pair becomes -inf. All
      // values before this point are computed for all pairs.
      if (~keys != 0 || !Queries::all_see(a, mine, begin, {key, key + kSide - 1})) {
        each_row<strips>([&](int m, int half) {
          const uint64_t seen =
              seen_by(a, first + own_row + m * kStrip + 8 * half, begin, key, keys);
          nothing[m][half] = seen == 0;
          each_of_row<kMatrices>([&, bits = seen >> column](int n, int c) {
            if ((bits >> (8 * n + c) & 1) == 0) s[m][n].v[2 * half + c] = -INFINITY;
          });
        });
      }
      each_row<strips>([&](int m, int half) { weigh(sums, m, half, nothing[m][half], s[m]); });
      if (any && drops(a)) {
        each_row<strips>([&](int m, int half) {
          const int row = own_row + m * kStrip + 8 * half;
          const uint64_t kept = both(Stages<depth>::kept(stages, stage, row)) >> column;
          each_of_row<kMatrices>([&](int n, int c) {
            s[m][n].v[2 * half + c] *= kept >> (8 * n + c) & 1 ? a.factor : 0.0f;
          });
        });
      }
      add_rows<type, depth>(sums.y, s, Stages<depth>::values(stages, stage), 0);
    }
    await_copies();
    __syncthreads();  // the next tile is complete, this one has been read
  }
#pragma unroll
  for (int m = 0; m < strips; ++m) {
    float factor[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = first + own_row + m * kStrip + 8 * half;
      const float weight = row_sum(sums.weight[m][half]);
      factor[half] = weight == 0 ? 1.0f : 1.0f / weight;
      if (column == 0 && row < count_of(a))
        a.lse[head * a.rows + row] =
            weight == 0 ? 0.0f : fused(sums.top[m][half], kLn2, logf(weight));
    }
    store_rows<type, depth>(a, a.y, first + warp_row + m * kStrip, head, sums.y[m], factor);
  }
}

// Turns x, the dot product of q and k, into its gradient, and w, the dot product of dy and v, into
// the weight after dropout, which dv needs. `share` is the factor of dropout.
template <bool capped>
DS_DEVICE void weigh_pair(const AttentionArgs& a, const OfQuery& query, float share, float& x,
                          float& w) {
  const float s = capped ? bent(a, scaled(a, x)) : x;
  const float p = power_of_2(fused(s, query.unit, -query.lse));
  x = __fmul_rn(p, fused(w, query.scale * share, -query.delta));
  if (capped) x *= slope_of(a, s);
  w = p * share;
}
// Calls weigh_pair() for all pairs of a thread. With `masked`, pairs without a bit in `seen` become
// 0. query(m, half, n, c) and share(m, half, n, c) return the OfQuery and the dropout factor of an
// element.
template <bool masked, bool capped, int strips, int count, typename Query, typename Share>
DS_DEVICE void weigh_pairs(const AttentionArgs& a, const uint32_t (&seen)[strips][2],
                           const Query& query, const Share& share, Floats4 (&s)[strips][count],
                           Floats4 (&dp)[strips][count]) {
  each_element<strips, count>([&](int m, int half, int n, int c) {
    float &x = s[m][n].v[2 * half + c], &w = dp[m][n].v[2 * half + c];
    weigh_pair<capped>(a, query(m, half, n, c), share(m, half, n, c), x, w);
    if (masked) {
      const bool there = seen[m][half] >> (8 * n + c) & 1;
      x = there ? x : 0.0f;
      w = there ? w : 0.0f;
    }
  });
}

// Calls weigh_pairs() with masks. Only entries with `any` contain the code for a cap.
template <bool any, int strips, int count, typename Query, typename Share>
DS_DEVICE void weigh_seen(const AttentionArgs& a, const uint32_t (&seen)[strips][2],
                          const Query& query, const Share& share, Floats4 (&s)[strips][count],
                          Floats4 (&dp)[strips][count]) {
  if (any && a.cap != 0)
    weigh_pairs<true, any>(a, seen, query, share, s, dp);
  else
    weigh_pairs<true, false>(a, seen, query, share, s, dp);
}

// The number of 8-column matrices whose gradients are in registers at a time. A tile is processed
// in parts of 8 kFew columns, because the scores of a whole tile, their gradients and the sums do
// not fit into registers.
constexpr int kFew = 2;

// Computes dq of a block's queries.
template <int32_t type, int depth, bool any>
DS_DEVICE void backward_queries(const AttentionArgs& a) {
  DS_SHARED(uint16_t, room);
  constexpr int strips = strips_of(depth), kRows = strips * kSide, kSize = Tile<depth>::kSize;
  using Rows = Left<depth, strips, depth == 64>;
  const Tile<depth> q{room}, dy{room + strips * kSize};
  const int first = first_query(a, kRows), head = static_cast<int>(blockIdx.y);
  const auto stages = Stages<depth>::of(a, room + 2 * strips * kSize, first, kRows, head);
  const int warp_row = warp() * strips * kStrip, own_row = warp_row + place().row,
            column = place().column;
  const Queries mine = Queries::of(a, first + warp_row, strips * kStrip);
  const bool dropped = any && drops(a);
  const float factor = dropped ? a.factor : 1.0f;
  const auto queries_from = Source<depth>::of(a.q), gradients_from = Source<depth>::of(a.dy);
#pragma unroll
  for (int m = 0; m < strips; ++m) {
    const int row = first + m * kSide;
    ask_for_tile<depth>(a, queries_from, row, head, rows_of_tile(a, row), {q.at + m * kSize});
    ask_for_tile<depth>(a, gradients_from, row, head, rows_of_tile(a, row), {dy.at + m * kSize});
  }
  const int end = smaller(first + kRows, count_of(a));
  KeyTiles tiles = KeyTiles::of(a, first, end);
  uint64_t next_keys = Stages<depth>::template ask<any>(stages, a, tiles, 0);
  OfQuery of[strips][2];
  each_row<strips>([&](int m, int half) {
    of[m][half] = OfQuery::at(a, first + own_row + m * kStrip + 8 * half, head);
  });
  await_copies();
  __syncthreads();
  const Rows queries = Rows::of(q, warp_row), gradients = Rows::of(dy, warp_row);
  Floats4 dq[strips][depth / 8] = {};
#pragma unroll 1
  for (int stage = 0; KeyTiles::there(tiles); stage ^= 1) {
    const int begin = tiles.begin, key = tiles.key;
    const uint64_t keys = next_keys;
    tiles = KeyTiles::after(a, tiles, end);
    if (KeyTiles::there(tiles))
      next_keys = Stages<depth>::template ask<any>(stages, a, tiles, stage ^ 1);
    const Tile<depth> k = Stages<depth>::keys(stages, stage),
                      v = Stages<depth>::values(stages, stage);
    const bool all = ~keys == 0 && Queries::all_see(a, mine, begin, {key, key + kSide - 1});
#pragma unroll 1
    for (int part = 0; part < kSide; part += 8 * kFew) {
      if (Queries::none_sees(a, mine, begin, {key + part, key + part + 8 * kFew - 1})) continue;
      Floats4 s[strips][kFew], dp[strips][kFew];
      products<type>(queries, k, part, s);
      products<type>(gradients, v, part, dp);
      uint32_t seen[strips][2] = {}, kept[strips][2] = {};
      const auto query = [&](int m, int half, int, int) { return of[m][half]; };
      const auto one = [](int, int, int, int) { return 1.0f; };
      if (!any && all) {
        weigh_pairs<false, false>(a, seen, query, one, s, dp);
      } else {
        each_row<strips>([&](int m, int half) {
          const int row = own_row + m * kStrip + 8 * half;
          const auto here = static_cast<uint32_t>(keys >> part);
          seen[m][half] = seen_by(a, first + row, begin, key + part, here) >> column;
          kept[m][half] =
              kept_from(dropped, Stages<depth>::kept(stages, stage, row), part) >> column;
        });
        const auto share = [&](int m, int half, int n, int c) {
          return any && (kept[m][half] >> (8 * n + c) & 1) == 0 ? 0.0f : factor;
        };
        weigh_seen<any>(a, seen, query, share, s, dp);
      }
      add_rows<type, depth>(dq, s, k, part);
    }
    await_copies();
    __syncthreads();  // the next tile is complete, this one has been read
  }
  const float one[2] = {1.0f, 1.0f};
#pragma unroll
  for (int m = 0; m < strips; ++m)
    store_rows<type, depth>(a, a.dq, first + warp_row + m * kStrip, head, dq[m], one);
}

// Computes dk and dv of a block's keys. Keys are the left operand here, so each accumulator of a
// thread has two keys and two neighbouring queries. The OfQuery of the queries pass through shared
// memory in two stages, as their rows do.
template <int32_t type, int depth, bool any>
DS_DEVICE void backward_keys(const AttentionArgs& a) {
  DS_SHARED(uint16_t, room);
  constexpr int kSize = Tile<depth>::kSize;
  const Tile<depth> k{room}, v{room + kSize};
  uint16_t* const stages = room + 2 * kSize;
  // Shared memory holds the block's keys and values, then two stages each of queries and dy, of
  // OfQuery, and of dropout masks.
  auto* const numbers = reinterpret_cast<OfQuery*>(stages + 4 * kSize);
  auto* const all_kept = reinterpret_cast<uint32_t*>(numbers + 2 * kSide);
  const int first = static_cast<int>(blockIdx.x) * kSide, key_head = static_cast<int>(blockIdx.y);
  const int warp_row = warp() * kStrip, own_row = warp_row + place().row, column = place().column;
  const Span mine{first + warp_row, first + warp_row + kStrip - 1};
  const bool dropped = any && drops(a);
  const float factor = dropped ? a.factor : 1.0f, unit = unit_of(a);
  ask_for_tile<depth>(a, Source<depth>::of(a.k), first, key_head, rows_of_tile(a, first), k);
  ask_for_tile<depth>(a, Source<depth>::of(a.v), first, key_head, rows_of_tile(a, first), v);
  QueryTiles tiles = QueryTiles::of(a, first, smaller(first + kSide, count_of(a)), key_head);
  const auto queries_from = Source<depth>::of(a.q), gradients_from = Source<depth>::of(a.dy);
  const auto ask = [&](int stage) {
    const uint64_t rows = rows_of_sequence(a, tiles.begin, tiles.query);
    uint16_t* const at = stages + 2 * stage * kSize;
    ask_for_tile<depth>(a, queries_from, tiles.query, tiles.head, rows, {at});
    ask_for_tile<depth>(a, gradients_from, tiles.query, tiles.head, rows, {at + kSize});
    OfQuery::ask(a, tiles.query, tiles.head, numbers + stage * kSide);
    if (dropped)
      draw_kept(a, tiles.query, kSide, tiles.begin, first, tiles.head,
                all_kept + 2 * stage * kSide);
    return rows;
  };
  // Returns the bits of the warp's keys to which queries of the current sequence may attend.
  const auto keys_that_count = [&] {
    return static_cast<uint32_t>(keys_of_tile(a, tiles.begin, first) >> warp_row & lowest(kStrip));
  };
  uint64_t next_queries = ask(0);
  uint32_t next_keys = keys_that_count();
  await_copies();
  __syncthreads();
  using Rows = Left<depth, 1, depth == 64>;
  const Rows left_k = Rows::of(k, warp_row), left_v = Rows::of(v, warp_row);
  Floats4 dk[1][depth / 8] = {}, dv[1][depth / 8] = {};
#pragma unroll 1
  for (int stage = 0; QueryTiles::there(tiles); stage ^= 1) {
    const int begin = tiles.begin, query = tiles.query;
    const uint64_t queries = next_queries;
    const uint32_t keys = next_keys;
    tiles = QueryTiles::after(a, tiles);
    if (QueryTiles::there(tiles)) {
      next_queries = ask(stage ^ 1);
      if (tiles.begin != begin) next_keys = keys_that_count();
    }
    const Tile<depth> q{stages + 2 * stage * kSize}, dy{q.at + kSize};
    const bool all = ~queries == 0 && keys == lowest<uint32_t>(kStrip) &&
                     all_in_sight(a, {query, query + kSide - 1}, mine);
#pragma unroll 1
    for (int part = 0; part < kSide; part += 8 * kFew) {
      if (keys == 0 || none_in_sight(a, {query + part, query + part + 8 * kFew - 1}, mine))
        continue;
      Floats4 s[1][kFew], dp[1][kFew];
      products<type>(left_k, q, part, s);
      products<type>(left_v, dy, part, dp);
      const int place_of_two = stage * kSide + part + column;
      const auto of = [&](int, int, int n, int c) { return numbers[place_of_two + 8 * n + c]; };
      uint32_t seen[1][2] = {};
      if (!any && all) {
        const auto one = [](int, int, int, int) { return 1.0f; };
        // Here every query attends to all keys, and there are at least two keys. So `unit` and
        // `scale` are the same for all queries and are kept in registers.
        const auto of_many = [&](int, int, int n, int c) {
          const OfQuery& query = numbers[place_of_two + 8 * n + c];
          return OfQuery{query.lse, query.delta, unit, a.scale};
        };
        weigh_pairs<false, false>(a, seen, of_many, one, s, dp);
      } else {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const int row = own_row + 8 * half;
          const auto here = static_cast<uint32_t>(queries >> part);
          if (keys >> (row - warp_row) & 1)
            seen[0][half] = seen_from(a, first + row, query + part, here) >> column;
        }
        const auto share = [&](int, int half, int n, int c) {
          const int key = own_row + 8 * half;
          if (!any) return 1.0f;
          return kept_from(dropped, all_kept + 2 * (place_of_two + 8 * n + c), key) & 1 ? factor
                                                                                        : 0.0f;
        };
        weigh_seen<any>(a, seen, of, share, s, dp);
      }
      add_rows<type, depth>(dv, dp, dy, part);
      add_rows<type, depth>(dk, s, q, part);
    }
    await_copies();
    __syncthreads();  // the next tile is complete, this one has been read
  }
  const float one[2] = {1.0f, 1.0f};
  store_rows<type, depth>(a, a.dk, mine.first, key_head, dk[0], one);
  store_rows<type, depth>(a, a.dv, mine.first, key_head, dv[0], one);
}

}  // namespace

// Computes the OfQuery of each row and head, including dy . y. A thread adds up eight columns; the
// sums of the threads of a row are then added in a tree.
DS_BLOCK_KERNEL(attention_queries_mma, AttentionArgs, kDeltaThreads) {
  const auto lanes = static_cast<unsigned>(delta_lanes(a.depth));
  const int d = 8 * static_cast<int>(threadIdx.x % lanes), head = static_cast<int>(blockIdx.y);
  const auto row = static_cast<int>(blockIdx.x * (kDeltaThreads / lanes) + threadIdx.x / lanes);
  const bool there = row < count_of(a);
  const int n = !there || d >= a.depth ? 0 : at_most_eight(a.depth - d);
  const Eight g = load(a.dy.at, row * a.dy.row + head * a.dy.head + d, n, aligned(a.dy, 16)),
              y = load(a.y.at, row * a.y.row + head * a.y.head + d, n, aligned(a.y, 16));
  float sum = 0;
#pragma unroll
  for (int k = 0; k < 8; ++k) sum = fused(g.v[k], y.v[k], sum);
  for (unsigned step = lanes / 2; step > 0; step /= 2) sum += __shfl_xor_sync(kAll, sum, step);
  if (there && d == 0) OfQuery::put(a, row, head, sum);
}

// The entries for heads of at most 64 and 128 columns. Entries whose names end in `any` also
// support dropout and a cap.
DS_BLOCK_KERNEL(attention_bf16_64, AttentionArgs, kAttentionThreads) {
  forward<DS_DTYPE_BF16, 64, false>(a);
}
DS_BLOCK_KERNEL(attention_dq_bf16_64, AttentionArgs, kAttentionThreads) {
  backward_queries<DS_DTYPE_BF16, 64, false>(a);
}
DS_BLOCK_KERNEL(attention_dkv_bf16_64, AttentionArgs, kAttentionThreads) {
  backward_keys<DS_DTYPE_BF16, 64, false>(a);
}
DS_BLOCK_KERNEL(attention_bf16_64_any, AttentionArgs, kAttentionThreads) {
  forward<DS_DTYPE_BF16, 64, true>(a);
}
DS_BLOCK_KERNEL(attention_dq_bf16_64_any, AttentionArgs, kAttentionThreads) {
  backward_queries<DS_DTYPE_BF16, 64, true>(a);
}
DS_BLOCK_KERNEL(attention_dkv_bf16_64_any, AttentionArgs, kAttentionThreads) {
  backward_keys<DS_DTYPE_BF16, 64, true>(a);
}
DS_BLOCK_KERNEL(attention_bf16_128, AttentionArgs, kAttentionThreads) {
  forward<DS_DTYPE_BF16, 128, false>(a);
}
DS_BLOCK_KERNEL(attention_dq_bf16_128, AttentionArgs, kAttentionThreads) {
  backward_queries<DS_DTYPE_BF16, 128, false>(a);
}
DS_BLOCK_KERNEL(attention_dkv_bf16_128, AttentionArgs, kAttentionThreads) {
  backward_keys<DS_DTYPE_BF16, 128, false>(a);
}
DS_BLOCK_KERNEL(attention_bf16_128_any, AttentionArgs, kAttentionThreads) {
  forward<DS_DTYPE_BF16, 128, true>(a);
}
DS_BLOCK_KERNEL(attention_dq_bf16_128_any, AttentionArgs, kAttentionThreads) {
  backward_queries<DS_DTYPE_BF16, 128, true>(a);
}
DS_BLOCK_KERNEL(attention_dkv_bf16_128_any, AttentionArgs, kAttentionThreads) {
  backward_keys<DS_DTYPE_BF16, 128, true>(a);
}
DS_BLOCK_KERNEL(attention_f16_64, AttentionArgs, kAttentionThreads) {
  forward<DS_DTYPE_F16, 64, false>(a);
}
DS_BLOCK_KERNEL(attention_dq_f16_64, AttentionArgs, kAttentionThreads) {
  backward_queries<DS_DTYPE_F16, 64, false>(a);
}
DS_BLOCK_KERNEL(attention_dkv_f16_64, AttentionArgs, kAttentionThreads) {
  backward_keys<DS_DTYPE_F16, 64, false>(a);
}
DS_BLOCK_KERNEL(attention_f16_64_any, AttentionArgs, kAttentionThreads) {
  forward<DS_DTYPE_F16, 64, true>(a);
}
DS_BLOCK_KERNEL(attention_dq_f16_64_any, AttentionArgs, kAttentionThreads) {
  backward_queries<DS_DTYPE_F16, 64, true>(a);
}
DS_BLOCK_KERNEL(attention_dkv_f16_64_any, AttentionArgs, kAttentionThreads) {
  backward_keys<DS_DTYPE_F16, 64, true>(a);
}
DS_BLOCK_KERNEL(attention_f16_128, AttentionArgs, kAttentionThreads) {
  forward<DS_DTYPE_F16, 128, false>(a);
}
DS_BLOCK_KERNEL(attention_dq_f16_128, AttentionArgs, kAttentionThreads) {
  backward_queries<DS_DTYPE_F16, 128, false>(a);
}
DS_BLOCK_KERNEL(attention_dkv_f16_128, AttentionArgs, kAttentionThreads) {
  backward_keys<DS_DTYPE_F16, 128, false>(a);
}
DS_BLOCK_KERNEL(attention_f16_128_any, AttentionArgs, kAttentionThreads) {
  forward<DS_DTYPE_F16, 128, true>(a);
}
DS_BLOCK_KERNEL(attention_dq_f16_128_any, AttentionArgs, kAttentionThreads) {
  backward_queries<DS_DTYPE_F16, 128, true>(a);
}
DS_BLOCK_KERNEL(attention_dkv_f16_128_any, AttentionArgs, kAttentionThreads) {
  backward_keys<DS_DTYPE_F16, 128, true>(a);
}

}  // namespace ds::cuda
