#include "comm/patience.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstddef>
#include <vector>

#include "core/base/contains.h"

namespace ds {
namespace {

// The longest time that one check adds. In a longer gap, this rank itself did not run.
constexpr int64_t kLongestStepNs = 200'000'000;
constexpr size_t kMostNamed = 4;

// The peer, the rank that it waits for, and so on. If the ranks wait in a cycle, the last entry
// repeats an earlier entry.
struct Chain {
  std::vector<int> ranks;
  // Hash that changes if any of the ranks works, or if the chain has other ranks.
  uint64_t work = 0;
  bool circle = false;
};

Chain chain_from(const World& world, int peer) {
  Chain chain;
  for (int r = peer; r >= 0 && !chain.circle;) {
    chain.circle = contains(chain.ranks, r);
    chain.ranks.push_back(r);
    Sign sign = world.sign(r);
    chain.work = (chain.work * 131 + static_cast<uint64_t>(r)) * 0x9e3779b97f4a7c15 + sign.work;
    r = sign.waits_for;
  }
  return chain;
}

// Returns a line that tells at most the first kMostNamed waits of the chain, names its last rank,
// and says how long it has made no progress.
std::string line_of(const World& world, const Chain& chain, int64_t ms) {
  size_t waiting = chain.ranks.size() - 1;
  if (waiting == 0)
    return fmt::format("rank {} has made no progress for {} ms", chain.ranks[0], ms);
  std::string out = chain.circle ? "ranks wait for each other: " : "";
  for (size_t i = 0; i < std::min(waiting, kMostNamed); ++i) {
    std::string doing = world.doing(chain.ranks[i]);
    out += fmt::format("{}rank {} waits {}for rank {}", i == 0 ? "" : ", ", chain.ranks[i],
                       doing.empty() ? "" : "in " + doing + " ", chain.ranks[i + 1]);
  }
  if (waiting > kMostNamed) out += fmt::format(", and so on to rank {}", chain.ranks.back());
  return fmt::format("{}, {} for {} ms", out, chain.circle ? "all" : "which has made no progress",
                     ms);
}

}  // namespace

// Two cases are distinguished. A rank that shows neither work nor pulse may have been stopped,
// whatever it waited for last. A rank whose pulse continues waits for others; it is given up only
// if no rank of its chain has worked. That also happens if the chain is a cycle.
std::string Patience::look(const World& world, int peer, int64_t now_ns, int64_t timeout_ms) {
  Sign sign = world.sign(peer);
  Chain chain = chain_from(world, peer);
  int64_t step = looked_ns_ == 0 ? 0 : std::min(now_ns - looked_ns_, kLongestStepNs);
  uint32_t alive = sign.work + sign.pulse;
  still_ns_ = alive != alive_ ? 0 : still_ns_ + step;
  idle_ns_ = chain.work != work_ ? 0 : idle_ns_ + step;
  looked_ns_ = now_ns;
  alive_ = alive;
  work_ = chain.work;
  // A rank that shows no heartbeat may have left the wait that it showed last, so its chain proves
  // nothing.
  if (still_ns_ / 1'000'000 > timeout_ms)
    return fmt::format("rank {} has made no progress for {} ms", peer, timeout_ms);
  return idle_ns_ / 1'000'000 > timeout_ms ? line_of(world, chain, timeout_ms) : "";
}

}  // namespace ds
