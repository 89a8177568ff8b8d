#include "comm/group.h"

namespace ds {

// Direct exchange: each rank publishes, for every other rank, that rank's elements; each sums its own over
// all ranks. Received: (W-1) * count elements of the wire type.
void Group::reduce_scatter(const void* in, void* out, size_t count_, DType wire, std::string_view label) {
  size_t unit = static_cast<size_t>(size_of(wire)), ranks = static_cast<size_t>(size_);
  begin("reduce_scatter", dtype_name(wire), count_ * unit, label);
  const auto* from = static_cast<const std::byte*>(in);
  size_t most = kHalf / ranks / unit * unit;
  chunks(count_ * unit, most, [&](size_t offset, size_t part) {
    auto own = static_cast<size_t>(rank_);
    for (size_t r = 0; r < ranks; ++r) {
      if (r != own) copy(mine() + r * part, from + r * count_ * unit + offset, part);
    }
    exchange();
    const void* src[kMaxRanks];
    for (int r = 0; r < size_; ++r) src[r] = theirs(r) + own * part;
    src[own] = from + own * count_ * unit + offset;
    tree_sum(src, size_, wire, static_cast<std::byte*>(out) + offset / unit * sum_size(wire), part / unit);
  });
  count("reduce_scatter", static_cast<int64_t>(count_ * unit) * (size_ - 1));
}

}  // namespace ds
