#include "comm/blocks.h"

namespace ds {

// Every rank gives its bytes to the root. Received: (W-1) * bytes at the root.
void Communicator::gather(const void* in, void* out, size_t bytes, int root, std::string_view label) {
  check_root(root);
  begin("gather", fmt::format("to {}", root), bytes, label);
  exchange_->prepare(bytes);
  size_t most = exchange_->part_bytes(Round::same), first = 0;
  bool taker = rank_ == root;
  Parts parts;
  do {
    size_t n = std::min(most, bytes - first);
    for (int r = 0; r < size_; ++r) {
      parts.sends[r] = part(at(in, first), r == root ? n : 0);
      parts.receives[r] = taker ? Part{at(out, static_cast<size_t>(r) * bytes + first), n} : Part{};
    }
    exchange_->round(parts.sends, parts.receives);
    first += n;
  } while (first < bytes);
  if (taker) copy(at(out, static_cast<size_t>(root) * bytes), in, bytes);
  exchange_->end();
  count("gather", taker ? bytes * static_cast<size_t>(size_ - 1) : 0);
}

}  // namespace ds
