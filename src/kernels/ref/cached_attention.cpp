// Attention of the new rows of a text to the keys and values in a cache, for generation.
#include "kernels/formulas/cached_attention.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <span>

#include "kernels/ref/ref.h"

namespace ds::ref {
namespace {

// Returns the scaled product of q and k, bounded by the soft cap, as in attention.cpp.
template <typename T>
Wide<T> score(const CachedAttention& a, const T* q, const T* k) {
  using A = Wide<T>;
  A sum = 0, cap = static_cast<A>(a.softcap);
  for (int64_t d = 0; d < a.depth; ++d) sum += get(q, d) * get(k, d);
  A s = static_cast<A>(a.scale) * sum;
  return cap == 0 ? s : cap * std::tanh(s / cap);
}

// Computes y for one head of a row at position p from the cached keys and values, with the
// arithmetic of `attention` in the same order. Each score is recomputed wherever it is used, so
// `sums`, with `depth` elements, is enough scratch for any number of positions.
template <typename T>
void attend(const CachedAttention& a, const T* q, const T* keys, const T* values, int64_t p,
            std::span<Wide<T>> sums, T* y) {
  using A = Wide<T>;
  int64_t first = a.first_key(p);
  A top = -std::numeric_limits<A>::infinity(), sum = 0;
  for (int64_t j = first; j <= p; ++j) top = std::max(top, score(a, q, keys + j * a.depth));
  for (int64_t j = first; j <= p; ++j) sum += std::exp(score(a, q, keys + j * a.depth) - top);
  A lse = top + std::log(sum);
  std::fill(sums.begin(), sums.end(), A{0});
  for (int64_t j = first; j <= p; ++j) {
    A weight = std::exp(score(a, q, keys + j * a.depth) - lse);
    for (int64_t d = 0; d < a.depth; ++d) sums[d] += weight * get(values + j * a.depth, d);
  }
  for (int64_t d = 0; d < a.depth; ++d) y[d] = static_cast<T>(sums[d]);
}

// Stores the new rows in the cache first, so that each row also sees itself and the new rows before
// it.
template <typename T>
void cached_attention(const KernelContext& c) {
  const CachedAttention a(c.in, c.attrs);
  copy_cache(c.in.back(), c.out[1]);
  T* cache = c.out[1].as<T>();
  store_rows(c, a, cache);
  const T* q = c.in[0].as<T>();
  T* y = c.out[0].as<T>();
  std::span<Wide<T>> sums = scratch_of<Wide<T>>(c, a.depth);
  for (int64_t r = 0; r < a.rows; ++r) {
    for (int64_t h = 0; h < a.heads; ++h) {
      int64_t kv = h / a.group;
      attend(a, q + a.place[0].at(r, h), cache + a.key(kv, 0), cache + a.value(kv, 0),
             int64_t{a.positions[r]}, sums, y + (r * a.heads + h) * a.depth);
    }
  }
}

}  // namespace

void add_cached_attention(KernelRegistry& registry) {
  add_by_type(registry, "cached_attention", []<typename T>() { return cached_attention<T>; });
}

}  // namespace ds::ref
