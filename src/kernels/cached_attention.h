#pragma once
#include <cstdint>
#include <span>

#include "kernels/kernel.h"

namespace ds {

// The operands and attributes of `cached_attention` in docs/reference/ops.md, for all implementations. Query
// head h reads key and value head h / group.
struct CachedAttention {
  CachedAttention(std::span<const TensorView> in, const Attrs& attrs);

  int64_t rows, heads, groups, group, depth, capacity, window;
  double scale, softcap;     // scale is never 0 here
  const int32_t* positions;  // [rows]

  // Places, in elements, of q (0), k (1) and v (2): head h of row r is at start + r * row + h * head of
  // operand `operand`.
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

// Makes out hold the cache when it has a place of its own.
void copy_cache(const TensorView& cache, const TensorView& out);

}  // namespace ds
