#pragma once
#include <algorithm>
#include <cstdint>
#include <span>

#include "core/base/error.h"
#include "kernels/formulas/attention_shape.h"
#include "kernels/kernel.h"

namespace ds {

// The operands and attributes of `cached_attention` in docs/reference/ops.md, for all
// implementations.
struct CachedAttention : HeadLayout {
  CachedAttention(std::span<const TensorView> in, const Attrs& attrs);

  int64_t rows, capacity, window;
  // A scale of 0 has been replaced by 1 / sqrt(depth).
  double scale, softcap;
  // The position in the cache of each row.
  const int32_t* positions;

  // The places of q, k and v among the operands.
  HeadPlace place[3];

  // Return the index in the cache of the first element of the key, or the value, at position p of
  // key head kv.
  int64_t key(int64_t kv, int64_t p) const { return (kv * capacity + p) * depth; }
  int64_t value(int64_t kv, int64_t p) const { return key(groups + kv, p); }
  // Returns the position of the first key that a row at position p sees. The last one is p.
  int64_t first_key(int64_t p) const { return window == 0 || p < window ? 0 : p - window + 1; }
};

// Copies row r of k and v to position positions[r] of the cache, for all rows. Throws if a position
// is outside the cache.
template <typename T>
void store_rows(const KernelContext& c, const CachedAttention& a, T* cache) {
  const T *k = c.in[a.place[1].operand].as<T>(), *v = c.in[a.place[2].operand].as<T>();
  for (int64_t r = 0; r < a.rows; ++r) {
    int64_t p = a.positions[r];
    ensure(p >= 0 && p < a.capacity,
           "cached_attention: position of row {} must be from 0 to {}, got {}", r, a.capacity - 1,
           p);
    for (int64_t kv = 0; kv < a.groups; ++kv) {
      std::copy_n(k + a.place[1].at(r, kv), a.depth, cache + a.key(kv, p));
      std::copy_n(v + a.place[2].at(r, kv), a.depth, cache + a.value(kv, p));
    }
  }
}

// Copies the cache to `out`, unless they are the same memory.
void copy_cache(const TensorView& cache, const TensorView& out);

}  // namespace ds
