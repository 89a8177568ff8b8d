#pragma once
#include <algorithm>
#include <cstdint>
#include <span>

#include "core/base/error.h"
#include "kernels/kernel.h"

namespace ds {

// The operands and attributes of `cached_attention` in docs/reference/ops.md, for all
// implementations. Query head h reads key and value head h / group.
struct CachedAttention {
  CachedAttention(std::span<const TensorView> in, const Attrs& attrs);

  int64_t rows, heads, groups, group, depth, capacity, window;
  double scale, softcap;     // scale is never 0 here
  const int32_t* positions;  // [rows]

  // Places, in elements, of q (0), k (1) and v (2): head h of row r is at start + r * row + h *
  // head of operand `operand`.
  struct Place {
    size_t operand;
    int64_t start, row, head;
    int64_t at(int64_t r, int64_t h) const { return start + r * row + h * head; }
  };
  Place place[3];

  // In the cache: key row p of head kv; its value row.
  int64_t key(int64_t kv, int64_t p) const { return (kv * capacity + p) * depth; }
  int64_t value(int64_t kv, int64_t p) const { return key(groups + kv, p); }
  // The first key that a row at position p sees; the last is p.
  int64_t first_key(int64_t p) const { return window == 0 || p < window ? 0 : p - window + 1; }
};

// Row positions[r] of the cache becomes row r of k and v.
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

// Makes out hold the cache when it has a place of its own.
void copy_cache(const TensorView& cache, const TensorView& out);

}  // namespace ds
