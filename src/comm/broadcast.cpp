#include "comm/group.h"
#include "core/base/error.h"

namespace ds {

// The root publishes; everyone copies. Received: bytes, 0 at the root.
void Group::broadcast(void* data, size_t bytes, int root, std::string_view label) {
  require(root >= 0 && root < size_, "root must be 0 to {}, got {}", size_ - 1, root);
  begin("broadcast", fmt::format("from {}", root), bytes, label);
  auto* to = static_cast<std::byte*>(data);
  chunks(bytes, kHalf, [&](size_t offset, size_t part) {
    if (rank_ == root) copy(mine(), to + offset, part);
    exchange();
    if (rank_ != root) copy(to + offset, theirs(root), part);
  });
  count("broadcast", rank_ == root ? 0 : static_cast<int64_t>(bytes));
}

}  // namespace ds
