// Attention, forward and backward, within the tolerances of kernels/accuracy.cpp.
// docs/reference/ops.md defines the operations.
//
// Forward (Dao, "FlashAttention-2", arXiv:2307.08691): a block has 32 queries of a head and walks
// through their keys by tiles of 32, with a running maximum and sum for each row, in f32. Four
// threads share a row: each computes eight of the 32 scores and accumulates a quarter of the
// columns of y. Backward computes the weights again from lse, in two passes: in the first, a block
// computes dq of 32 queries; in the second, dk and dv of 32 keys, over all query heads of the key
// head. There are no atomics: one thread computes each sum, in a fixed order.
//
// The bits of a row depend only on its own sequence: tiles of keys are counted from the sequence's
// first row, wherever the sequence is in the batch, and a key to which a row does not attend
// changes no bit. A tile of queries may contain rows of several sequences; it walks through the
// keys of each.
//
// If a row attends to one key only, its weight must be exactly 1 and the gradient of its score
// exactly 0. This holds because one function, dot(), computes all dot products in the same order:
// the score in backward equals lse, and dy . v equals dy . y because y is v. With dropout y is
// rounded, so such rows are marked (`alone`).
//
// Cached attention has few rows and many keys (Dao et al., "Flash-Decoding for long-context
// inference", 2023): the keys of a row are divided into parts by their position in the cache. A
// block processes one part, a warp four keys at a time, a thread some columns. Every part has its
// own maximum; `cached_join` combines the parts. The part and warp of a key depend only on its
// position, so the bits of a row depend neither on the other rows of the call nor on how earlier
// rows were grouped into calls.
//
// Dot products use ordinary multiply-adds: these are the kernels for f32 and for wide heads. The
// kernels in kernels/cuda/attention_mma.cu use tensor cores.
#include "kernels/cuda/attention-inl.h"

namespace ds::cuda {
namespace {

// The number of keys, or queries, of a tile for which one thread computes scores.
constexpr int kEach = kTile / 4;

// Returns the factor that dropout applies to a pair's weight: 0 or 1 / (1 - share).
DS_DEVICE float kept_of(const AttentionArgs& a, int64_t query, int64_t begin, int64_t key,
                        int64_t head) {
  const uint64_t number = number_of(a, query, begin, key, head);
  return keeps(a, words_of(stream_of(a), number / 4), number) ? a.factor : 0.0f;
}

// Returns the dot product. All dot products use this order; see the beginning of this file.
DS_DEVICE float dot(const float* x, const float* y, int depth) {
  float sum = 0;
#pragma unroll 8
  for (int d = 0; d < depth; ++d) sum = fused(x[d], y[d], sum);
  return sum;
}

DS_DEVICE float element(const Heads& h, int64_t row, int64_t head, int64_t d) {
  return get(h.at, row * h.row + head * h.head + d);
}
// Loads rows [first, first + kTile) of a head as f32, with a row pitch of depth + 1, which avoids
// bank conflicts. Rows that do not exist, or that `mask` excludes, become 0: their weight is 0, and
// 0 times a stale NaN would be NaN.
DS_DEVICE void load_tile(const AttentionArgs& a, const Heads& h, int64_t first, int64_t head,
                         float* tile, const int32_t* mask = nullptr) {
  const int columns = a.depth;
  for (int e = static_cast<int>(threadIdx.x); e < kTile * columns;
       e += static_cast<int>(kAttentionThreads)) {
    const int r = e / columns, d = e % columns;
    const bool there = first + r < a.rows && (!mask || mask[first + r] != 0);
    tile[r * (columns + 1) + d] = there ? element(h, first + r, head, d) : 0.0f;
  }
}

// Stores columns quarter, quarter + 4, ... of a thread's row, divided by `divisor`.
template <int most>
DS_DEVICE void store_row(const AttentionArgs& a, const Heads& to, int64_t row, int64_t head,
                         int quarter, const float (&x)[most], float divisor) {
  if (row >= a.rows) return;
#pragma unroll
  for (int c = 0; c < most; ++c) {
    const int d = quarter + 4 * c;
    if (d < a.depth) put(to.at, row * to.row + head * to.head + d, x[c] / divisor);
  }
}
// Adds weights[0 .. kTile) times the rows of `tile` to this thread's columns of `sums`.
template <int most>
DS_DEVICE void add_rows(const AttentionArgs& a, const float* weights, const float* tile,
                        int quarter, float (&sums)[most]) {
#pragma unroll 1
  for (int j = 0; j < kTile; ++j) {
    const float w = weights[j];
    const float* row = tile + j * (a.depth + 1);
#pragma unroll
    for (int c = 0; c < most; ++c) {
      const int d = quarter + 4 * c;
      if (d < a.depth) sums[c] = fused(w, row[d], sums[c]);
    }
  }
}

// Computes y and lse of a block's queries. `most` is the number of columns that a thread
// accumulates: a quarter of the columns of the entry's widest head. In this and the following
// functions, `own` is the thread's row of the tile and `quarter` selects its columns.
template <int most>
DS_DEVICE void forward(const AttentionArgs& a) {
  DS_SHARED(float, q);
  const int pitch = a.depth + 1;
  float *k = q + kTile * pitch, *v = k + kTile * pitch, *p = v + kTile * pitch;
  const int own = static_cast<int>(threadIdx.x / 4), quarter = static_cast<int>(threadIdx.x % 4);
  const int64_t first = static_cast<int64_t>(blockIdx.x) * kTile, head = blockIdx.y,
                key_head = head / a.group;
  const int64_t query = first + own, mine = query < a.rows ? begin_of(a, query) : -1;
  const bool dropped = drops(a);
  float top = -INFINITY, sum = 0, y[most] = {};
  load_tile(a, a.q, first, head, q);
  each_key_tile<kTile>(a, first, [&](int64_t begin, int64_t key) {
    __syncthreads();  // the previous tile has been read
    load_tile(a, a.k, key, key_head, k, a.mask);
    load_tile(a, a.v, key, key_head, v, a.mask);
    __syncthreads();
    float s[kEach], best = -INFINITY;
#pragma unroll
    for (int c = 0; c < kEach; ++c) {
      const int j = quarter + 4 * c;
      const bool seen = mine == begin && sees(a, query, mine, key + j);
      s[c] = seen ? score(a, dot(q + own * pitch, k + j * pitch, a.depth)) : -INFINITY;
      // The comparison keeps a NaN.
      best = s[c] > best || s[c] != s[c] ? s[c] : best;
    }
    best = row_largest(best);
    const float next = top > best ? top : best;
    const bool nothing = next == -INFINITY;
    // The sums so far are relative to `top`; this factor makes them relative to the new maximum.
    // The maximum of a row without any key so far is -inf, and -inf - -inf would be NaN.
    const float kept_share = nothing ? 1.0f : expf(top - next);
    float added = 0;
#pragma unroll
    for (int c = 0; c < kEach; ++c) {
      const int j = quarter + 4 * c;
      float weight = nothing ? 0.0f : expf(s[c] - next);
      added += weight;
      if (dropped && weight > 0) weight *= kept_of(a, query, mine, key + j, head);
      p[own * (kTile + 1) + j] = weight;
    }
    // row_sum() and the barrier of the warp order the writes to p before the reads by the row's
    // four threads.
    sum = sum * kept_share + row_sum(added);
    top = next;
    __syncwarp();
#pragma unroll
    for (int c = 0; c < most; ++c) y[c] *= kept_share;
    add_rows(a, p + own * (kTile + 1), v, quarter, y);
  });
  // A row that attends to no key, because all are masked, has y = 0 and lse = 0.
  store_row(a, a.y, query, head, quarter, y, sum == 0 ? 1.0f : sum);
  if (quarter == 0 && query < a.rows)
    a.lse[head * a.rows + query] = sum == 0 ? 0.0f : top + logf(sum);
}

// The values that backward computes for a pair of a query and a key. `p` is its weight before
// dropout. `ds` is the gradient with respect to the dot product of q and k, which is p (share (dy .
// v) - delta) times the scale and the slope of the cap, where `share` is the factor of dropout.
struct PairGradient {
  float p, ds;
};
DS_DEVICE PairGradient pair_gradient(const AttentionArgs& a, const float* q, const float* k,
                                     const float* dy, const float* v, float lse, float delta,
                                     float share, bool alone) {
  const float s = score(a, dot(q, k, a.depth)), p = expf(s - lse);
  const float slope = a.cap == 0 ? 1.0f : slope_of(a, s);
  return {p, alone ? 0.0f : a.scale * p * (share * dot(dy, v, a.depth) - delta) * slope};
}

// Computes dq of a block's queries: for each tile of keys, the gradients of the scores, then their
// products with the keys.
template <int most>
DS_DEVICE void backward_queries(const AttentionArgs& a) {
  DS_SHARED(float, q);
  const int pitch = a.depth + 1;
  float *dy = q + kTile * pitch, *k = dy + kTile * pitch, *v = k + kTile * pitch,
        *ds = v + kTile * pitch;
  const int own = static_cast<int>(threadIdx.x / 4), quarter = static_cast<int>(threadIdx.x % 4);
  const int64_t first = static_cast<int64_t>(blockIdx.x) * kTile, head = blockIdx.y,
                key_head = head / a.group;
  const int64_t query = first + own;
  const bool there = query < a.rows, dropped = drops(a);
  const int64_t mine = there ? begin_of(a, query) : -1;
  const float lse = there ? a.lse[head * a.rows + query] : 0,
              delta = there ? a.delta[head * a.rows + query] : 0;
  const bool alone = dropped && there && a.alone[query] != 0;
  float dq[most] = {};
  load_tile(a, a.q, first, head, q);
  load_tile(a, a.dy, first, head, dy);
  each_key_tile<kTile>(a, first, [&](int64_t begin, int64_t key) {
    __syncthreads();  // the previous tile has been read
    load_tile(a, a.k, key, key_head, k, a.mask);
    load_tile(a, a.v, key, key_head, v, a.mask);
    __syncthreads();
#pragma unroll 1
    for (int j = quarter; j < kTile; j += 4) {
      float gradient = 0;
      if (mine == begin && sees(a, query, mine, key + j)) {
        const float share = dropped ? kept_of(a, query, mine, key + j, head) : 1.0f;
        gradient = pair_gradient(a, q + own * pitch, k + j * pitch, dy + own * pitch, v + j * pitch,
                                 lse, delta, share, alone)
                       .ds;
      }
      ds[own * (kTile + 1) + j] = gradient;
    }
    __syncwarp();
    add_rows(a, ds + own * (kTile + 1), k, quarter, dq);
  });
  store_row(a, a.dq, query, head, quarter, dq, 1.0f);
}

// Computes dk and dv of a block's keys: for each tile of queries that may attend to one of the
// keys, the weights and the gradients of the scores, then their products with dy and q. The sums
// include all query heads of the key head, so grouped heads need no further reduction.
template <int most>
DS_DEVICE void backward_keys(const AttentionArgs& a) {
  DS_SHARED(float, k);
  const int pitch = a.depth + 1;
  float *v = k + kTile * pitch, *q = v + kTile * pitch, *dy = q + kTile * pitch,
        *ds = dy + kTile * pitch;
  float* p = ds + kTile * (kTile + 1);
  const int own = static_cast<int>(threadIdx.x / 4), quarter = static_cast<int>(threadIdx.x % 4);
  const int64_t first = static_cast<int64_t>(blockIdx.x) * kTile, key_head = blockIdx.y,
                key = first + own;
  const int64_t last = smaller(first + kTile, a.rows) - 1;
  const bool dropped = drops(a);
  // The queries that may attend to one of the keys: from the first key (if causal) or the first row
  // of its sequence, to the end of the last key's sequence or window. The order of sums does not
  // depend on where tiles begin, so these tiles need not begin with a sequence.
  const int64_t low = a.causal ? first : begin_of(a, first);
  int64_t high = smaller(begin_of(a, last) + a.seq, a.rows);
  if (a.window != 0) high = smaller(high, last + a.window);
  float dk[most] = {}, dv[most] = {};
  load_tile(a, a.k, first, key_head, k);
  load_tile(a, a.v, first, key_head, v);
#pragma unroll 1
  for (int64_t head = key_head * a.group; head < (key_head + 1) * a.group; ++head) {
#pragma unroll 1
    for (int64_t query = low; query < high && begin_of(a, query) <= last; query += kTile) {
      __syncthreads();  // the previous tile has been read
      load_tile(a, a.q, query, head, q);
      load_tile(a, a.dy, query, head, dy);
      __syncthreads();
#pragma unroll 1
      for (int i = quarter; i < kTile; i += 4) {
        const int64_t row = query + i;
        PairGradient g{0, 0};
        if (row < a.rows && key < a.rows) {
          const int64_t begin = begin_of(a, row);
          if (sees(a, row, begin, key)) {
            const float share = dropped ? kept_of(a, row, begin, key, head) : 1.0f;
            g = pair_gradient(a, q + i * pitch, k + own * pitch, dy + i * pitch, v + own * pitch,
                              a.lse[head * a.rows + row], a.delta[head * a.rows + row], share,
                              dropped && a.alone[row] != 0);
            g.p *= share;
          }
        }
        ds[own * (kTile + 1) + i] = g.ds;
        p[own * (kTile + 1) + i] = g.p;
      }
      __syncwarp();
      add_rows(a, ds + own * (kTile + 1), q, quarter, dk);
      add_rows(a, p + own * (kTile + 1), dy, quarter, dv);
    }
  }
  store_row(a, a.dk, key, key_head, quarter, dk, 1.0f);
  store_row(a, a.dv, key, key_head, quarter, dv, 1.0f);
}

struct Keys {
  int64_t first, end;
};
// Returns the keys [first, end) of the cache to which a row attends. The range is empty if the
// position of the row is outside the cache.
DS_DEVICE Keys keys_of(const CachedArgs& a, int64_t row) {
  const int64_t place = a.positions[row];
  if (place < 0 || place >= a.capacity) return {0, 0};
  return {a.window == 0 ? 0 : larger(0, place - a.window + 1), place + 1};
}

// Combines partial sums for column d. Each partial sum is relative to the largest score of its own
// keys. A part has the layout of CachedArgs::parts. An empty part has the maximum -inf and gets the
// factor 0.
struct Joined {
  float y, top, weight;
};
DS_DEVICE Joined join(const float* parts, int64_t count, int depth, int d) {
  const int pitch = depth + 2;
  Joined all{0, -INFINITY, 0};
  for (int64_t i = 0; i < count; ++i) {
    const float top = parts[i * pitch + depth];
    all.top = top > all.top ? top : all.top;
  }
  for (int64_t i = 0; i < count; ++i) {
    const float* part = parts + i * pitch;
    const float factor = part[depth] == -INFINITY ? 0.0f : expf(part[depth] - all.top);
    all.y = fused(factor, part[d], all.y);
    all.weight = fused(factor, part[depth + 1], all.weight);
  }
  return all;
}

// Computes one part of the keys for one row and head. Each warp keeps its own maximum, sum and y;
// these are combined through shared memory at the end. The scores of four keys are computed before
// any of them is used, so that their loads overlap.
template <int most>
DS_DEVICE void cached_part(const CachedArgs& a) {
  DS_SHARED(float, room);
  const int64_t row = blockIdx.x, head = blockIdx.y, part = blockIdx.z, key_head = head / a.group;
  const Keys seen = keys_of(a, row);
  const int64_t first = larger(seen.first, part * a.share),
                end = smaller(seen.end, (part + 1) * a.share);
  if (first >= end) return;
  const int lane = static_cast<int>(threadIdx.x % kWarp),
            warp = static_cast<int>(threadIdx.x / kWarp);
  const int64_t keys = key_head * a.capacity * a.depth,
                values = keys + a.groups * a.capacity * a.depth;
  float q[most], y[most] = {}, top = -INFINITY, weight = 0;
#pragma unroll
  for (int c = 0; c < most; ++c) {
    const int d = lane + 32 * c;
    q[c] = d < a.depth ? element(a.q, row, head, d) : 0.0f;
  }
  constexpr int kStep = kWarpKeys * static_cast<int>(kCachedWarps);
#pragma unroll 1
  for (int64_t key = first / kStep * kStep + warp * kWarpKeys; key < end; key += kStep) {
    float s[kWarpKeys], best = top;
#pragma unroll
    for (int i = 0; i < kWarpKeys; ++i) {
      const bool mine = key + i >= first && key + i < end;
      float x = 0;
#pragma unroll
      for (int c = 0; c < most; ++c) {
        const int d = lane + 32 * c;
        if (mine && d < a.depth) x = fused(q[c], get(a.cache, keys + (key + i) * a.depth + d), x);
      }
#pragma unroll
      for (unsigned step = kWarp / 2; step > 0; step /= 2) x += __shfl_xor_sync(kAll, x, step);
      s[i] = mine ? score(a, x) : -INFINITY;
      best = s[i] > best ? s[i] : best;
    }
    const float kept_share = top == -INFINITY ? 0.0f : expf(top - best);
    top = best;
    weight *= kept_share;
#pragma unroll
    for (int c = 0; c < most; ++c) y[c] *= kept_share;
#pragma unroll
    for (int i = 0; i < kWarpKeys; ++i) {
      if (key + i < first || key + i >= end) continue;
      const float w = expf(s[i] - top);
      weight += w;
#pragma unroll
      for (int c = 0; c < most; ++c) {
        const int d = lane + 32 * c;
        if (d < a.depth) y[c] = fused(w, get(a.cache, values + (key + i) * a.depth + d), y[c]);
      }
    }
  }
  const int pitch = a.depth + 2;
  float* own = room + warp * pitch;
#pragma unroll
  for (int c = 0; c < most; ++c) {
    if (lane + 32 * c < a.depth) own[lane + 32 * c] = y[c];
  }
  if (lane == 0) own[a.depth] = top, own[a.depth + 1] = weight;
  __syncthreads();
  float* to = a.parts + ((row * a.heads + head) * a.most_parts + part) * pitch;
  for (int d = static_cast<int>(threadIdx.x); d < a.depth;
       d += static_cast<int>(kCachedWarps * kWarp)) {
    const Joined all = join(room, kCachedWarps, a.depth, d);
    to[d] = all.y;
    if (d == 0) to[a.depth] = all.top, to[a.depth + 1] = all.weight;
  }
}

}  // namespace

// Copies rows of k and v to their positions in the cache.
DS_LOOP_KERNEL(cache_rows, CachedArgs) {
  const int64_t i = thread_number(), columns = static_cast<int64_t>(a.groups) * a.depth;
  if (i >= a.rows * columns) return;
  const int64_t row = i / columns, head = i % columns / a.depth, d = i % a.depth,
                place = a.positions[row];
  if (place < 0 || place >= a.capacity) return;
  put(a.cache, (head * a.capacity + place) * a.depth + d, element(a.k, row, head, d));
  put(a.cache, ((a.groups + head) * a.capacity + place) * a.depth + d, element(a.v, row, head, d));
}
// Combines the parts of each row, head and column. A row whose position is outside the cache has no
// keys and becomes 0.
DS_LOOP_KERNEL(cached_join, CachedArgs) {
  const int64_t i = thread_number(), columns = static_cast<int64_t>(a.heads) * a.depth;
  if (i >= a.rows * columns) return;
  const int64_t row = i / columns, head = i % columns / a.depth;
  const int d = static_cast<int>(i % a.depth);
  const Keys seen = keys_of(a, row);
  float y = 0;
  if (seen.end > 0) {
    const int64_t first = seen.first / a.share, count = (seen.end - 1) / a.share + 1 - first;
    const float* parts = a.parts + ((row * a.heads + head) * a.most_parts + first) * (a.depth + 2);
    const Joined all = join(parts, count, a.depth, d);
    y = all.y / all.weight;
  }
  put(a.y.at, row * a.y.row + head * a.y.head + d, y);
}
DS_BLOCK_KERNEL(cached_part_64, CachedArgs, kCachedWarps* kWarp) { cached_part<2>(a); }
DS_BLOCK_KERNEL(cached_part_128, CachedArgs, kCachedWarps* kWarp) { cached_part<4>(a); }
DS_BLOCK_KERNEL(cached_part_256, CachedArgs, kCachedWarps* kWarp) { cached_part<8>(a); }

// Computes delta = dy . y of each row and head, in the order of dot(), and whether the row attends
// to exactly one key. A thread computes the sum of one row and head, but elements are read in tiles
// through shared memory, so that accesses are coalesced.
DS_BLOCK_KERNEL(attention_delta, AttentionArgs, kDeltaThreads) {
  DS_SHARED(float, gradients);
  float* const results = gradients + kDeltaThreads * kDeltaPitch;
  const int64_t first = static_cast<int64_t>(blockIdx.x) * kDeltaThreads;
  const int64_t here = smaller(a.rows * a.heads - first, kDeltaThreads);
  const int column = static_cast<int>(threadIdx.x % kWarp),
            warp = static_cast<int>(threadIdx.x / kWarp);
  constexpr int kWarps = kDeltaThreads / kWarp;
  float sum = 0;
  for (int begin = 0; begin < a.depth; begin += static_cast<int>(kWarp)) {
    const int width =
        a.depth - begin < static_cast<int>(kWarp) ? a.depth - begin : static_cast<int>(kWarp);
    int64_t row = (first + warp) / a.heads, head = (first + warp) % a.heads;
    for (int64_t pair = warp; pair < here; pair += kWarps) {
      if (column < width) {
        gradients[pair * kDeltaPitch + column] = element(a.dy, row, head, begin + column);
        results[pair * kDeltaPitch + column] = element(a.y, row, head, begin + column);
      }
      for (head += kWarps; head >= a.heads; head -= a.heads) ++row;
    }
    __syncthreads();
    if (threadIdx.x < here) {
      for (int d = 0; d < width; ++d) {
        const int at = static_cast<int>(threadIdx.x) * kDeltaPitch + d;
        sum = fused(gradients[at], results[at], sum);
      }
    }
    __syncthreads();
  }
  if (threadIdx.x >= here) return;
  const int64_t row = (first + threadIdx.x) / a.heads, head = (first + threadIdx.x) % a.heads;
  a.delta[head * a.rows + row] = sum;
  if (head == 0) a.alone[row] = sees_one(a, row);
}

// The entries for heads of at most 64, 128 and 256 columns.
DS_BLOCK_KERNEL(attention_64, AttentionArgs, kAttentionThreads) { forward<16>(a); }
DS_BLOCK_KERNEL(attention_128, AttentionArgs, kAttentionThreads) { forward<32>(a); }
DS_BLOCK_KERNEL(attention_256, AttentionArgs, kAttentionThreads) { forward<64>(a); }
DS_BLOCK_KERNEL(attention_dq_64, AttentionArgs, kAttentionThreads) { backward_queries<16>(a); }
DS_BLOCK_KERNEL(attention_dq_128, AttentionArgs, kAttentionThreads) { backward_queries<32>(a); }
DS_BLOCK_KERNEL(attention_dq_256, AttentionArgs, kAttentionThreads) { backward_queries<64>(a); }
DS_BLOCK_KERNEL(attention_dkv_64, AttentionArgs, kAttentionThreads) { backward_keys<16>(a); }
DS_BLOCK_KERNEL(attention_dkv_128, AttentionArgs, kAttentionThreads) { backward_keys<32>(a); }
DS_BLOCK_KERNEL(attention_dkv_256, AttentionArgs, kAttentionThreads) { backward_keys<64>(a); }

}  // namespace ds::cuda
