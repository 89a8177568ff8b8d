#include <fmt/core.h>

#include <string_view>

#include "comm/collectives/collective.h"

namespace ds {

// The root sends its bytes to every rank. Bytes received: 0 at the root, `bytes` on every other
// rank.
void Communicator::broadcast(void* data, size_t bytes, int root, std::string_view label) {
  check_root(root, size_);
  perform({"broadcast", fmt::format("from {}", exchange_->world(root)), bytes, label}, [&] {
    Rounds(*exchange_).spread(data, bytes, root);
    return rank_ == root ? 0 : bytes;
  });
}

// Only the root sends, and every rank receives only the root's part. At the root, source and target
// are the same bytes.
void Rounds::spread(void* data, size_t bytes, int root) {
  in_rounds(exchange_, Round::same, bytes, [&](size_t r, size_t first, size_t n) -> GiveTake {
    Part chunk{at(data, first), n};
    return {rank_ == root ? chunk : Part{}, static_cast<int>(r) == root ? chunk : Part{}};
  });
}

}  // namespace ds
