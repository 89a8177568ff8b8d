#include <fmt/core.h>

#include <string_view>

#include "comm/collectives/collective.h"

namespace ds {

// Every rank sends its bytes to the root. Bytes received: (W-1) * bytes at the root, elsewhere 0.
void Communicator::gather(const void* in, void* out, size_t bytes, int root,
                          std::string_view label) {
  check_root(root, size_);
  perform({"gather", fmt::format("to {}", exchange_->world(root)), bytes, label}, [&] {
    bool taker = rank_ == root;
    // Every rank sends only to the root, and only the root receives.
    in_rounds(*exchange_, Round::one, bytes, [&](size_t r, size_t first, size_t n) -> GiveTake {
      return {to_send(at(in, first), static_cast<int>(r) == root ? n : 0),
              taker ? Part{at(out, r * bytes + first), n} : Part{}};
    });
    return taker ? bytes * static_cast<size_t>(size_ - 1) : 0;
  });
}

}  // namespace ds
