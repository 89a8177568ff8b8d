#include <fmt/core.h>

#include <string_view>

#include "comm/collectives/collective.h"

namespace ds {

// The root sends a different block to every rank. Bytes received: 0 at the root, `bytes` on every
// other rank.
void Communicator::scatter(const void* in, void* out, size_t bytes, int root,
                           std::string_view label) {
  check_root(root, size_);
  perform({"scatter", fmt::format("from {}", exchange_->world(root)), bytes, label}, [&] {
    bool giver = rank_ == root;
    in_rounds(*exchange_, Round::each, bytes, [&](size_t r, size_t first, size_t n) -> GiveTake {
      return {giver ? to_send(at(in, r * bytes + first), n) : Part{},
              {at(out, first), static_cast<int>(r) == root ? n : 0}};
    });
    return giver ? 0 : bytes;
  });
}

}  // namespace ds
