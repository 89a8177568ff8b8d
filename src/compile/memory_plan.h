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

// The bytes that a rank needs, by tier, in arenas that all programs share.
struct MemoryPlan {
  ArenaSizes tiers[3];
  int64_t total(Tier tier) const {
    const ArenaSizes& a = tiers[static_cast<int>(tier)];
    return a.persistent + a.transient;
  }
  // Enlarges each arena to the size that the program needs, if it is smaller.
  void add(const Program& program);
};
// Returns whether every tier stays within its budget.
bool fits(const MemoryPlan& memory, const MemoryBudget& budget);
// Throws DS_ERROR_OUT_OF_MEMORY with the memory_table() if the plan does not fit.
void check_budget(std::span<const Buffer> buffers, const MemoryPlan& memory,
                  const MemoryBudget& budget);

// The bytes of one tier by kind: parameters, states, gradients, activations and others.
struct TierMemory {
  Tier tier = Tier::device;
  std::vector<std::pair<std::string, int64_t>> kinds;
  int64_t total = 0;
  // Negative if the tier has no budget.
  int64_t budget = -1;
};

// Returns the bytes of each tier, where `buffers` includes the engine's persistent buffers.
std::vector<TierMemory> memory_by_tier(std::span<const Buffer> buffers, const MemoryPlan& memory,
                                       const MemoryBudget& budget);
// Returns the bytes by tier and kind as a table for people.
std::string memory_table(std::span<const TierMemory> tiers);
// Returns the bytes by tier and kind as an array with one object for each tier.
Json memory_json(std::span<const TierMemory> tiers);

}  // namespace ds
