#include "comm/group.h"

namespace ds {

// Each rank publishes its bytes once; every other rank copies them. Received: (W-1) * bytes.
void Group::all_gather(const void* in, void* out, size_t bytes, std::string_view label) {
  begin("all_gather", "", bytes, label);
  auto* to = static_cast<std::byte*>(out);
  const auto* from = static_cast<const std::byte*>(in);
  chunks(bytes, kHalf, [&](size_t offset, size_t part) {
    copy(mine(), from + offset, part);
    exchange();
    for (int r = 0; r < size_; ++r) {
      std::byte* place = to + static_cast<size_t>(r) * bytes + offset;
      if (r != rank_) copy(place, theirs(r), part);
      if (r == rank_ && place != from + offset) copy(place, from + offset, part);
    }
  });
  count("all_gather", static_cast<int64_t>(bytes) * (size_ - 1));
}

}  // namespace ds
