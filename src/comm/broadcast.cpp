#include <fmt/core.h>

#include <string_view>

#include "comm/collective.h"

namespace ds {

// The root gives its bytes to everyone. Received: bytes, 0 at the root.
void Communicator::broadcast(void* data, size_t bytes, int root, std::string_view label) {
  check_root(root);
  perform({"broadcast", fmt::format("from {}", exchange_->world(root)), bytes, label}, [&] {
    spread(data, bytes, root);
    return rank_ == root ? 0 : bytes;
  });
}

void Communicator::spread(void* data, size_t bytes, int root) {
  in_rounds(*exchange_, Round::same, bytes, [&](size_t r, size_t first, size_t n) -> GiveTake {
    Part chunk{at(data, first), n};
    return {rank_ == root ? chunk : Part{}, static_cast<int>(r) == root ? chunk : Part{}};
  });
}

}  // namespace ds
