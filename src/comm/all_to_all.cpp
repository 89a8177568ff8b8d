#include <cstring>

#include "comm/group.h"

namespace ds {

// Each rank publishes all its blocks; each copies the ones meant for it. Received: (W-1) * bytes.
void Group::all_to_all(const void* in, void* out, size_t bytes, std::string_view label) {
  begin("all_to_all", bytes, label);
  const auto* from = static_cast<const std::byte*>(in);
  auto* to = static_cast<std::byte*>(out);
  size_t ranks = static_cast<size_t>(size_);
  chunks(bytes, kHalf / ranks, [&](size_t offset, size_t part) {
    for (size_t r = 0; r < ranks; ++r) std::memcpy(mine() + r * part, from + r * bytes + offset, part);
    exchange();
    for (int r = 0; r < size_; ++r) {
      std::memcpy(to + static_cast<size_t>(r) * bytes + offset, theirs(r) + static_cast<size_t>(rank_) * part,
                  part);
    }
  });
  count("all_to_all", static_cast<int64_t>(bytes) * (size_ - 1));
}

}  // namespace ds
