#include "kernels/cached_attention.h"

#include <cmath>
#include <cstring>

namespace ds {

CachedAttention::CachedAttention(std::span<const TensorView> in, const Attrs& attrs)
    : rows(in[0].dims[0]),
      heads(attrs.integer("heads")),
      groups(in.back().dims[0] / 2),
      group(heads / groups),
      depth(in.back().dims[2]),
      capacity(in.back().dims[1]),
      window(attrs.integer_or("window", 0)),
      scale(attrs.real_or("scale", 0)),
      softcap(attrs.real_or("softcap", 0)),
      positions(in[in.size() - 2].as<int32_t>()) {
  if (scale == 0) scale = 1 / std::sqrt(static_cast<double>(depth));
  bool packed = in.size() == 3, per_head = attrs.integer_or("per_head", 0) != 0;
  int64_t queries = heads * depth, keys = groups * depth;
  for (size_t which = 0; which < 3; ++which) {
    auto index = static_cast<int64_t>(which);
    if (per_head) {
      place[which] = {0, index * depth, 3 * queries, 3 * depth};
    } else if (packed) {
      place[which] = {0, which == 0 ? 0 : queries + (index - 1) * keys, queries + 2 * keys, depth};
    } else {
      place[which] = {which, 0, which == 0 ? queries : keys, depth};
    }
  }
}

void copy_cache(const TensorView& cache, const TensorView& out) {
  if (out.data == cache.data) return;
  std::memcpy(out.data, cache.data, static_cast<size_t>(cache.numel() * size_of(cache.dtype)));
}

}  // namespace ds
