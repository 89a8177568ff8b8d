#include "comm/group.h"

namespace ds {

// Each rank publishes the others' blocks; each copies the ones meant for it. Received: (W-1) * bytes.
void Group::all_to_all(const void* in, void* out, size_t bytes, std::string_view label) {
  begin("all_to_all", "", bytes, label);
  const auto* from = static_cast<const std::byte*>(in);
  auto* to = static_cast<std::byte*>(out);
  size_t ranks = static_cast<size_t>(size_);
  chunks(bytes, kHalf / ranks, [&](size_t offset, size_t part) {
    auto own = static_cast<size_t>(rank_);
    for (size_t r = 0; r < ranks; ++r) {
      if (r != own) copy(mine() + r * part, from + r * bytes + offset, part);
    }
    exchange();
    for (int r = 0; r < size_; ++r) {
      const std::byte* source = r == rank_ ? from + own * bytes + offset : theirs(r) + own * part;
      copy(to + static_cast<size_t>(r) * bytes + offset, source, part);
    }
  });
  count("all_to_all", static_cast<int64_t>(bytes) * (size_ - 1));
}

}  // namespace ds
