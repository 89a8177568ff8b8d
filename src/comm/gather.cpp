#include <fmt/core.h>

#include <string_view>

#include "comm/collective.h"

namespace ds {

// Every rank gives its bytes to the root. Received: (W-1) * bytes at the root.
void Communicator::gather(const void* in, void* out, size_t bytes, int root,
                          std::string_view label) {
  check_root(root);
  perform({"gather", fmt::format("to {}", exchange_->world(root)), bytes, label}, [&] {
    bool taker = rank_ == root;
    in_rounds(*exchange_, Round::one, bytes, [&](size_t r, size_t first, size_t n) -> GiveTake {
      return {to_send(at(in, first), static_cast<int>(r) == root ? n : 0),
              taker ? Part{at(out, r * bytes + first), n} : Part{}};
    });
    return taker ? bytes * static_cast<size_t>(size_ - 1) : 0;
  });
}

}  // namespace ds
