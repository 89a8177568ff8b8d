#include "comm/exchange.h"

#include <fmt/core.h>

#include <algorithm>
#include <numeric>

#include "comm/copy.h"
#include "core/base/error.h"
#include "core/base/process_mark.h"

namespace ds {

Membership Membership::whole(int rank, int size) {
  Membership out{rank, std::vector<int>(static_cast<size_t>(size)), ""};
  std::iota(out.world.begin(), out.world.end(), 0);
  return out;
}

// `members` are ranks of this group. In the subset they keep their numbers in the world.
Membership Membership::subset(const std::vector<int>& members, std::string name) const {
  auto own = std::ranges::find(members, rank);
  Membership out{static_cast<int>(own - members.begin()), {}, std::move(name)};
  for (int r : members) out.world.push_back(world[static_cast<size_t>(r)]);
  return out;
}

void Exchange::take_own(const Part* sends, const Part* receives, size_t whole) const {
  const Part &give = sends[rank()], &take = receives[rank()];
  if (take.data) copy(take.data, give.data, give.size, whole);
}

void Exchange::need_maker(const Intent& intent, int process) {
  if (this_process().number == process) return;
  raise(DS_ERROR_STATE, "{} '{}': the communicator was created by process {}, not by its child {}",
        intent.operation, intent.label, process, this_process().number);
}

// Error messages begin with this text, so that each of them names the rank, the operation, its
// label and the group.
std::string Exchange::here(const Intent& intent) const {
  std::string part = place_.group.empty() ? "" : fmt::format(" of group '{}'", place_.group);
  std::string label = intent.label[0] == '\0' ? "" : fmt::format(" '{}'", intent.label);
  return fmt::format("rank {} in {}{}{}", world(rank()), intent.operation, label, part);
}

}  // namespace ds
