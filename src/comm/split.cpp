#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "comm/collectives/blocks.h"
#include "comm/collectives/collective.h"
#include "comm/comm_log.h"
#include "comm/communicator.h"
#include "comm/exchange.h"
#include "core/base/hash.h"
#include "core/base/trace.h"

namespace ds {

// All ranks exchange their colors and keys, so each finds its group in the same list. The name of
// the new group contains a token of rank 0, so that no other split has the same name.
std::unique_ptr<Communicator> Communicator::split(int color, int key, std::string_view label) {
  need_pairs(*exchange_, label);
  struct Choice {
    int64_t color, key;
    // A hash that is practically unique. Rank 0's hash becomes part of the new groups' names.
    uint64_t token;
  };
  std::string seed = fmt::format("{} {} {}", getpid(), now_ns(), static_cast<const void*>(this));
  Choice mine{color, key, hash64(seed)};
  std::vector<Choice> all(static_cast<size_t>(size_));
  all_gather(&mine, all.data(), sizeof mine, label);
  if (color < 0) return nullptr;
  std::vector<int> members;
  for (int r = 0; r < size_; ++r) {
    if (all[static_cast<size_t>(r)].color == color) members.push_back(r);
  }
  std::ranges::stable_sort(members, [&](int a, int b) {
    return all[static_cast<size_t>(a)].key < all[static_cast<size_t>(b)].key;
  });
  std::string name = fmt::format("split-{:x}-{}", all[0].token, color);
  std::string called = fmt::format("{} {}", label, color);
  auto group =
      std::make_unique<Communicator>(exchange_->split(name, members, called), *this, called);
  if (log_)
    group->start_log(
        std::vector<std::string>(log_->operations().begin(), log_->operations().end()));
  return group;
}

}  // namespace ds
