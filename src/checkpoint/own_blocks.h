#pragma once
#include <algorithm>
#include <cstdint>

#include "checkpoint/state_access.h"
#include "core/graph/param_slice.h"
#include "core/program/granules.h"

namespace ds {

// Calls f(bucket, place, block) for every block of elements that this rank writes: the unpadded
// parts of parameters within its shard of each bucket. `place` says where the parameter lies in the
// bucket.
template <typename F>
void for_own_blocks(const StateAccess& state, const F& f) {
  const Layout& layout = state.layout();
  for (BucketId b : layout.buckets.ids()) {
    int64_t low = state.own_first(b), high = low + layout.buckets[b].shard();
    for (const ParamPlace& p : layout.buckets[b].params) {
      int64_t begin = std::max(low, p.begin), end = std::min(high, p.begin + p.numel);
      if (begin >= end || !state.writes(p.param)) continue;
      for (const SliceBlock& block : state.slice(p.param).blocks(begin - p.begin, end - begin))
        f(b, p, block);
    }
  }
}

}  // namespace ds
