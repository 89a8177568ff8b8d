#include "comm/blocks.h"

namespace ds {

// The root gives every rank its block. Received: bytes, 0 at the root.
void Communicator::scatter(const void* in, void* out, size_t bytes, int root, std::string_view label) {
  check_root(root);
  begin("scatter", fmt::format("from {}", root), bytes, label);
  exchange_->prepare(bytes);
  size_t most = exchange_->part_bytes(Round::each), first = 0;
  bool giver = rank_ == root;
  Parts parts;
  do {
    size_t n = std::min(most, bytes - first);
    for (int r = 0; r < size_; ++r) {
      parts.sends[r] = giver ? part(at(in, static_cast<size_t>(r) * bytes + first), n) : Part{};
      parts.receives[r] = {at(out, first), r == root ? n : 0};
    }
    exchange_->round(parts.sends, parts.receives);
    first += n;
  } while (first < bytes);
  if (giver) copy(out, at(in, static_cast<size_t>(root) * bytes), bytes);
  exchange_->end();
  count("scatter", giver ? 0 : bytes);
}

}  // namespace ds
