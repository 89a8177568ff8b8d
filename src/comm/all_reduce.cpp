#include <algorithm>

#include "comm/group.h"

namespace ds {

// Per chunk: a reduce_scatter, then an all_gather of the sums. Received, up to rounding to whole elements:
// (W-1)/W * count of the wire type and as many sums.
void Group::all_reduce(const void* in, void* out, size_t count_, DType wire, std::string_view label) {
  size_t unit = static_cast<size_t>(size_of(wire)), sum = sum_size(wire), ranks = static_cast<size_t>(size_);
  begin("all_reduce", dtype_name(wire), count_ * unit, label);
  const auto* from = static_cast<const std::byte*>(in);
  auto* to = static_cast<std::byte*>(out);
  chunks(count_, kHalf / std::max(unit, sum), [&](size_t first, size_t part) {
    size_t share = (part + ranks - 1) / ranks;
    auto begin_of = [&](int r) { return std::min(part, static_cast<size_t>(r) * share); };
    size_t own = begin_of(rank_), own_count = begin_of(rank_ + 1) - own;
    size_t after = own + own_count;  // its own share it reads where it is
    copy(mine(), from + first * unit, own * unit);
    copy(mine() + after * unit, from + (first + after) * unit, (part - after) * unit);
    exchange();
    const void* src[kMaxRanks];
    for (int r = 0; r < size_; ++r) src[r] = theirs(r) + own * unit;
    src[rank_] = from + (first + own) * unit;
    std::byte* sums = to + (first + own) * sum;
    tree_sum(src, size_, wire, sums, own_count);
    copy(mine(), sums, own_count * sum);
    exchange();
    for (int r = 0; r < size_; ++r) {
      size_t begin = begin_of(r), end = begin_of(r + 1);
      if (r != rank_) copy(to + (first + begin) * sum, theirs(r), (end - begin) * sum);
    }
  });
  count("all_reduce", static_cast<int64_t>(count_ * (unit + sum)) * (size_ - 1) / size_);
}

}  // namespace ds
