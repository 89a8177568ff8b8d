#include "comm/blocks.h"

namespace ds {

// The root gives its bytes to everyone. Received: bytes, 0 at the root.
void Communicator::broadcast(void* data, size_t bytes, int root, std::string_view label) {
  check_root(root);
  begin("broadcast", fmt::format("from {}", root), bytes, label);
  exchange_->prepare(bytes);
  size_t most = exchange_->part_bytes(Round::same), first = 0;
  Parts parts;
  do {
    size_t n = std::min(most, bytes - first);
    for (int r = 0; r < size_; ++r) {
      parts.sends[r] = part(at(data, first), rank_ == root ? n : 0);
      parts.receives[r] = {at(data, first), r == root ? n : 0};
    }
    exchange_->round(parts.sends, parts.receives);
    first += n;
  } while (first < bytes);
  exchange_->end();
  count("broadcast", rank_ == root ? 0 : bytes);
}

}  // namespace ds
