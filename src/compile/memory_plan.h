#pragma once
#include <cstdint>
#include <span>
#include <string>

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
void check_budget(std::span<const Buffer> buffers, const MemoryPlan& memory, const MemoryBudget& budget);

// A table of bytes by tier and kind (parameters, states, gradients, activations and buffers). `buffers`: the
// engine's persistent ones.
std::string memory_table(std::span<const Buffer> buffers, const MemoryPlan& memory,
                         const MemoryBudget& budget);

}  // namespace ds
