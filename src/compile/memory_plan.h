#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/base/json.h"
#include "core/config/config.h"
#include "core/program/program.h"

namespace ds {

// Bytes a rank needs, by tier: arenas shared by all programs.
struct MemoryPlan {
  ArenaSizes tiers[3];
  int64_t total(Tier tier) const {
    const ArenaSizes& a = tiers[static_cast<int>(tier)];
    return a.persistent + a.transient;
  }
  void add(const Program& program);  // shares its arenas with the programs before
};
bool fits(const MemoryPlan& memory, const MemoryBudget& budget);
// Throws DS_ERROR_OUT_OF_MEMORY with the whole memory_table() of a plan that does not fit.
void check_budget(std::span<const Buffer> buffers, const MemoryPlan& memory,
                  const MemoryBudget& budget);

// Bytes of one tier by kind: parameters, states, gradients, activations and buffers.
struct TierMemory {
  Tier tier = Tier::device;
  std::vector<std::pair<std::string, int64_t>> kinds;
  int64_t total = 0;
  int64_t budget = -1;  // negative: none
};
// `buffers`: the engine's persistent ones.
std::vector<TierMemory> memory_by_tier(std::span<const Buffer> buffers, const MemoryPlan& memory,
                                       const MemoryBudget& budget);
// The same as a table, and as an array of objects.
std::string memory_table(std::span<const TierMemory> tiers);
Json memory_json(std::span<const TierMemory> tiers);

}  // namespace ds
