#include "compile/memory_plan.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/base/error.h"

namespace ds {
namespace {

// Returns the kind of a buffer as tables show it. Several values of Holds share one kind.
const char* kind_of(const Buffer& buffer) {
  switch (buffer.holds) {
    case Holds::param:
      return "parameters";
    case Holds::master:
    case Holds::state:
      return "optimizer states";
    case Holds::error:
      return "quantization errors";
    case Holds::grad:
      return "gradients";
    default:
      return "inputs and results";
  }
}

std::string budget_text(int64_t limit) { return limit < 0 ? "-" : std::to_string(limit); }

}  // namespace

std::vector<TierMemory> memory_by_tier(std::span<const Buffer> buffers, const MemoryPlan& memory,
                                       const MemoryBudget& budget) {
  std::map<std::string, int64_t> kinds[3];
  for (const Buffer& b : buffers) {
    if (b.residency == Residency::persistent)
      kinds[static_cast<int>(b.tier)][kind_of(b)] += b.bytes();
  }
  int64_t limits[3] = {budget.device, budget.host, budget.nvme};
  std::vector<TierMemory> out;
  for (int t = 0; t < 3; ++t) {
    TierMemory tier{static_cast<Tier>(t), {kinds[t].begin(), kinds[t].end()}, 0, limits[t]};
    // The persistent arena is larger than the sum of its buffers, because buffers are aligned.
    int64_t padding = memory.tiers[t].persistent;
    for (const auto& [kind, bytes] : tier.kinds) padding -= bytes;
    if (padding > 0) tier.kinds.emplace_back("alignment", padding);
    tier.kinds.emplace_back("activations and buffers", memory.tiers[t].transient);
    tier.total = memory.total(tier.tier);
    out.push_back(std::move(tier));
  }
  return out;
}

std::string memory_table(std::span<const TierMemory> tiers) {
  constexpr const char* row = "{:<10}{:<26}{:>16}{:>12.2f}";
  std::string out =
      fmt::format("{:<10}{:<26}{:>16}{:>12}\n", "tier", "kind", "bytes per rank", "MiB");
  auto mib = [](int64_t bytes) { return static_cast<double>(bytes) / (1 << 20); };
  for (const TierMemory& tier : tiers) {
    const char* name = tier_name(tier.tier);
    for (const auto& [kind, bytes] : tier.kinds)
      out += fmt::format(row, name, kind, bytes, mib(bytes)) + "\n";
    out += fmt::format(row, name, "total", tier.total, mib(tier.total)) +
           fmt::format("  budget {}\n", budget_text(tier.budget));
  }
  return out;
}

Json memory_json(std::span<const TierMemory> tiers) {
  Json::Array out;
  for (const TierMemory& tier : tiers) {
    Json kinds{Json::Object()}, entry;
    for (const auto& [kind, bytes] : tier.kinds) kinds.set(kind, bytes);
    entry.set("tier", tier_name(tier.tier));
    entry.set("bytes", tier.total);
    entry.set("kinds", std::move(kinds));
    entry.set("budget", tier.budget < 0 ? Json() : Json(tier.budget));
    out.push_back(std::move(entry));
  }
  return out;
}

bool fits(const MemoryPlan& memory, const MemoryBudget& budget) {
  int64_t limits[3] = {budget.device, budget.host, budget.nvme};
  for (int t = 0; t < 3; ++t) {
    if (limits[t] >= 0 && memory.total(static_cast<Tier>(t)) > limits[t]) return false;
  }
  return true;
}

void check_budget(std::span<const Buffer> buffers, const MemoryPlan& memory,
                  const MemoryBudget& budget) {
  if (fits(memory, budget)) return;
  // raise() would turn the table into one line and shorten it.
  throw Error(DS_ERROR_OUT_OF_MEMORY,
              fmt::format("memory_budget is too small for this plan:\n{}",
                          memory_table(memory_by_tier(buffers, memory, budget))));
}

// Only one program of a rank runs at a time, so the largest transient arena suffices. Persistent
// arenas have the same layout in all programs.
void MemoryPlan::add(const Program& program) {
  for (int t = 0; t < 3; ++t) {
    tiers[t].persistent = std::max(tiers[t].persistent, program.arenas[t].persistent);
    tiers[t].transient = std::max(tiers[t].transient, program.arenas[t].transient);
  }
}

}  // namespace ds
