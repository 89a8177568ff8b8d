// Reads the shape of `cached_attention` from its operands: qkv or q, k, v, then the positions and
// the cache, [2 * key heads, capacity, depth]. Also copies a cache.
#include "kernels/formulas/cached_attention.h"

#include <cmath>
#include <cstring>

namespace ds {

CachedAttention::CachedAttention(std::span<const TensorView> in, const Attrs& attrs)
    : rows(in[0].dims[0]),
      capacity(in.back().dims[1]),
      window(attrs.integer_or("window", 0)),
      scale(attrs.real_or("scale", 0)),
      softcap(attrs.real_or("softcap", 0)),
      positions(in[in.size() - 2].as<int32_t>()) {
  heads = attrs.integer("heads");
  groups = in.back().dims[0] / 2;
  group = heads / groups;
  depth = in.back().dims[2];
  packed = in.size() == 3;
  per_head = attrs.integer_or("per_head", 0) != 0;
  if (scale == 0) scale = 1 / std::sqrt(static_cast<double>(depth));
  for (size_t which = 0; which < 3; ++which) place[which] = part_place(which);
}

void copy_cache(const TensorView& cache, const TensorView& out) {
  if (out.data == cache.data) return;
  std::memcpy(out.data, cache.data, static_cast<size_t>(cache.numel() * size_of(cache.dtype)));
}

}  // namespace ds
