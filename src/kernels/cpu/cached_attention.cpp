// Attention of the new rows of a text to the keys and values in a cache, for generation. Memory
// bandwidth bounds it: each key and value is read once for each row and query head. A task is one
// row of one query head.
#include "kernels/formulas/cached_attention.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/cached_attention.cpp"
#include <hwy/foreach_target.h>

#include "kernels/cpu/attention.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ds::cpu::HWY_NAMESPACE {

// The number of keys whose products with a query are summed at the same time.
constexpr int64_t kKeys = 4;
// The number of keys whose scores are stored at the same time. A row that sees more keys processes
// them block by block with a running maximum (Milakov and Gimelshein 2018, arXiv:1805.02867), so
// scratch has a fixed size.
constexpr int64_t kKeyBlock = 1024;

// Computes the dot products of q (f32) with kKeys keys of `depth` columns. Four independent chains
// hide the latency of the additions.
template <typename T>
HWY_INLINE void dots(const float* q, const T* keys, int64_t depth, float* out) {
  Vec sums[kKeys] = {hn::Zero(Lanes()), hn::Zero(Lanes()), hn::Zero(Lanes()), hn::Zero(Lanes())};
  int64_t d = 0, step = lanes();
  for (; d + step <= depth; d += step) {
    Vec x = load(q + d);
    for (int64_t j = 0; j < kKeys; ++j)
      sums[j] = hn::MulAdd(x, load(keys + j * depth + d), sums[j]);
  }
  if (d < depth) {
    Vec x = load_part(q + d, depth - d);
    for (int64_t j = 0; j < kKeys; ++j) {
      sums[j] = hn::MulAdd(x, load_part(keys + j * depth + d, depth - d), sums[j]);
    }
  }
  for (int64_t j = 0; j < kKeys; ++j) out[j] = sum(sums[j]);
}

// Returns the dot product of q and one key, summed in the order of dots().
template <typename T>
HWY_INLINE float dot(const float* q, const T* key, int64_t depth) {
  Vec total = hn::Zero(Lanes());
  int64_t d = 0, step = lanes();
  for (; d + step <= depth; d += step) total = hn::MulAdd(load(q + d), load(key + d), total);
  if (d < depth)
    total = hn::MulAdd(load_part(q + d, depth - d), load_part(key + d, depth - d), total);
  return sum(total);
}

// One row of one query head, computed from the keys and values in the cache that the row sees.
template <typename T>
struct CachedRow {
  const CachedAttention& a;
  // The scaled query, the weights of a block of keys, and the running sums of the values. `o` is
  // padded to a multiple of lanes() columns.
  float *q, *weights, *o;

  CachedRow(const CachedAttention& shape, std::span<std::byte> scratch) : a(shape) {
    Carver carve(scratch);
    q = carve.floats(a.depth);
    o = carve.floats(round_up(a.depth, lanes()));
    weights = carve.floats(kKeyBlock + kStrip);
  }

  // weights[j] = the score of key j times log2 e, and -infinity in the lanes after the last key.
  // Returns the largest score times log2 e.
  HWY_INLINE float score(const T* keys, int64_t count) {
    const Lanes d;
    int64_t j = 0, step = lanes();
    for (; j + kKeys <= count; j += kKeys) dots(q, keys + j * a.depth, a.depth, weights + j);
    for (; j < count; ++j) weights[j] = dot(q, keys + j * a.depth, a.depth);
    if (a.softcap != 0) {
      Vec limit = hn::Set(d, static_cast<float>(a.softcap * kLog2OfE));
      map(
          0, count, weights, [=](Vec x) HWY_ATTR { return hn::Mul(tanh_of(x), limit); }, weights);
    }
    std::fill(weights + count, weights + count + step, -INFINITY);
    Vec most = hn::Set(d, -INFINITY);
    for (j = 0; j < count; j += step) most = hn::Max(most, load(weights + j));
    return maximum(most);
  }

  // weights[j] = exp2(weights[j] - top). Returns their sum.
  HWY_INLINE float weigh(int64_t count, float top) {
    const Lanes d;
    Vec total = hn::Zero(d);
    for (int64_t j = 0; j < count; j += lanes()) {
      Vec p = exp2_negative(hn::Sub(load(weights + j), hn::Set(d, top)));
      store(p, weights + j);
      total = hn::Add(total, p);
    }
    return sum(total);
  }

  // o = o * fade + the sum of weights[j] values[j], four vectors of columns at a time.
  HWY_INLINE void mix(const T* values, int64_t count, float fade) {
    const Vec old = hn::Set(Lanes(), fade);
    constexpr int64_t kWide = 4;
    int64_t e = 0, step = lanes();
    for (; e + kWide * step <= a.depth; e += kWide * step) {
      Vec s[kWide];
      for (int64_t i = 0; i < kWide; ++i) s[i] = hn::Mul(load(o + e + i * step), old);
      for (int64_t j = 0; j < count; ++j) {
        Vec w = hn::Set(Lanes(), weights[j]);
        for (int64_t i = 0; i < kWide; ++i) {
          s[i] = hn::MulAdd(w, load(values + j * a.depth + e + i * step), s[i]);
        }
      }
      for (int64_t i = 0; i < kWide; ++i) store(s[i], o + e + i * step);
    }
    for (; e < a.depth; e += step) {
      int64_t columns = std::min(step, a.depth - e);
      Vec s = hn::Mul(load(o + e), old);
      for (int64_t j = 0; j < count; ++j) {
        const T* at = values + j * a.depth + e;
        s = hn::MulAdd(hn::Set(Lanes(), weights[j]),
                       columns == step ? load(at) : load_part(at, columns), s);
      }
      store(s, o + e);
    }
  }

  // Computes y of the row: multiplies the query by the scale and by log2 e (or, with a soft cap, by
  // the scale over the cap), then scores, weighs and mixes the keys and values block by block.
  HWY_INLINE void run(const T* query, const T* keys, const T* values, int64_t position, T* y) {
    double unit = a.softcap == 0 ? kLog2OfE : 1 / a.softcap;
    Vec factor = hn::Set(Lanes(), static_cast<float>(a.scale * unit));
    map(
        0, a.depth, q, [=](Vec x) HWY_ATTR { return hn::Mul(x, factor); }, query);
    std::fill(o, o + round_up(a.depth, lanes()), 0.0f);
    float top = -INFINITY, total = 0, fade = 0;
    int64_t end = position + 1;
    for (int64_t j = a.first_key(position); j < end; j += kKeyBlock) {
      int64_t count = std::min(kKeyBlock, end - j);
      float most = std::max(top, score(keys + j * a.depth, count));
      // The first block has nothing to fade: top is -infinity there.
      if (total != 0) fade = hn::GetLane(exp2_negative(hn::Set(Lanes(), top - most)));
      top = most;
      total = total * fade + weigh(count, top);
      mix(values + j * a.depth, count, fade);
    }
    Vec share = hn::Set(Lanes(), 1 / total);
    map(
        0, a.depth, y, [=](Vec x) HWY_ATTR { return hn::Mul(x, share); }, o);
  }
};

// Stores rows of k and v in the cache, then runs one task for each row of each head.
template <typename T>
void cached_attention(const KernelContext& c) {
  const CachedAttention a(c.in, c.attrs);
  copy_cache(c.in.back(), c.out[1]);
  T* cache = c.out[1].as<T>();
  const T* q = c.in[a.place[0].operand].as<T>();
  T* y = c.out[0].as<T>();
  store_rows(c, a, cache);
  // Rows of one head are neighbouring tasks, because they read the same keys and values.
  for_tasks(c.team, a.rows * a.heads, [&](int64_t task, int thread) HWY_ATTR {
    int64_t h = task / a.rows, r = task % a.rows, kv = h / a.group;
    CachedRow<T>(a, c.team.scratch(thread))
        .run(q + a.place[0].at(r, h), cache + a.key(kv, 0), cache + a.value(kv, 0), a.positions[r],
             y + (r * a.heads + h) * a.depth);
  });
}

void add_cached_attention(KernelRegistry& registry) {
  add_by_type(registry, "cached_attention", []<typename T>() { return cached_attention<T>; });
}

}  // namespace ds::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
