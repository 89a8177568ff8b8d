#include "compile/memory_plan.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <span>
#include <string>

#include "core/base/error.h"

namespace ds {
namespace {

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

std::string memory_table(std::span<const Buffer> buffers, const MemoryPlan& memory,
                         const MemoryBudget& budget) {
  std::map<std::string, int64_t> rows[3];
  for (const Buffer& b : buffers) {
    if (b.residency == Residency::persistent) rows[static_cast<int>(b.tier)][kind_of(b)] += b.bytes();
  }
  int64_t limits[3] = {budget.device, budget.host, budget.nvme};
  constexpr const char* row = "{:<10}{:<26}{:>16}{:>12.2f}";
  std::string out = fmt::format("{:<10}{:<26}{:>16}{:>12}\n", "tier", "kind", "bytes per rank", "MiB");
  auto mib = [](int64_t bytes) { return static_cast<double>(bytes) / (1 << 20); };
  for (int t = 0; t < 3; ++t) {
    const char* tier = tier_name(static_cast<Tier>(t));
    int64_t named = 0;
    for (const auto& [kind, bytes] : rows[t]) {
      out += fmt::format(row, tier, kind, bytes, mib(bytes)) + "\n";
      named += bytes;
    }
    int64_t padding = memory.tiers[t].persistent - named;
    if (padding > 0) out += fmt::format(row, tier, "alignment", padding, mib(padding)) + "\n";
    int64_t transient = memory.tiers[t].transient, total = memory.total(static_cast<Tier>(t));
    out += fmt::format(row, tier, "activations and buffers", transient, mib(transient)) + "\n";
    out += fmt::format(row, tier, "total", total, mib(total)) +
           fmt::format("  budget {}\n", budget_text(limits[t]));
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

void check_budget(std::span<const Buffer> buffers, const MemoryPlan& memory, const MemoryBudget& budget) {
  if (fits(memory, budget)) return;
  // Not by raise, which makes one short line of every message.
  throw Error(DS_ERROR_OUT_OF_MEMORY, fmt::format("memory_budget is too small for this plan:\n{}",
                                                  memory_table(buffers, memory, budget)));
}

void MemoryPlan::add(const Program& program) {
  for (int t = 0; t < 3; ++t) {
    tiers[t].persistent = std::max(tiers[t].persistent, program.arenas[t].persistent);
    tiers[t].transient = std::max(tiers[t].transient, program.arenas[t].transient);
  }
}

}  // namespace ds
