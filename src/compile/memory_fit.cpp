#include "compile/memory_fit.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "core/base/tier.h"
#include "core/config/config.h"

namespace ds {

int64_t bytes_on_host(const MemoryPlan& memory, bool own_device_memory, int64_t unbacked) {
  return memory.total(Tier::host) + (own_device_memory ? 0 : memory.total(Tier::device) - unbacked);
}

namespace {

// Returns the product, or INT64_MAX if it overflows.
int64_t times(int64_t bytes, int ranks) {
  int64_t out = 0;
  return __builtin_mul_overflow(bytes, int64_t{ranks}, &out) ? INT64_MAX : out;
}

}  // namespace

MemoryLimit host_limit(int64_t bytes, int ranks, const HostMemory& has) {
  MemoryLimit machine{"host memory", times(bytes, ranks), has.machine, ranks, has.available};
  if (!machine.holds()) return machine;
  for (const GroupLimit& one : has.groups) {
    MemoryLimit group{"host memory of its control group", times(bytes, one.ranks), one.bytes,
                      one.ranks};
    if (!group.holds()) return group;
  }
  return machine;
}

std::vector<MemoryLimit> budget_limits(const MemoryPlan& memory, const MemoryBudget& budget) {
  std::vector<MemoryLimit> out;
  for (auto [tier, limit] : {std::pair{Tier::device, budget.device},
                             {Tier::host, budget.host},
                             {Tier::nvme, budget.nvme}}) {
    if (limit >= 0)
      out.push_back({fmt::format("memory_budget.{}", tier_name(tier)), memory.total(tier), limit});
  }
  return out;
}

std::string gib_text(int64_t bytes) {
  const double gib = static_cast<double>(bytes) / (int64_t{1} << 30);
  constexpr double kLeast = 0.00001;
  if (bytes > 0 && gib < kLeast) return fmt::format("under {:.5f} GiB", kLeast);
  const int digits = gib >= 100 ? 0 : gib >= 10 ? 1 : gib >= 1 ? 2 : gib >= 0.1 ? 3 : 5;
  return fmt::format("{:.{}f} GiB", gib, digits);
}

std::string limit_text(const MemoryLimit& limit) {
  // Two different numbers that look equal in GiB are printed in bytes.
  std::string needs = gib_text(limit.needs), has = gib_text(limit.has);
  if (needs == has && limit.needs != limit.has) {
    needs = fmt::format("{} bytes", limit.needs);
    has = fmt::format("{} bytes", limit.has);
  }
  if (limit.of.starts_with("memory_budget"))
    return fmt::format("needs {} per rank, but {} is {}", needs, limit.of, has);
  const std::string ranks = limit.ranks == 1 ? "1 rank" : fmt::format("{} ranks", limit.ranks);
  std::string out = fmt::format("needs {} of {} ({}), ", needs, limit.of, ranks);
  out += limit.of == "host memory" ? "this machine has " : "which has ";
  out += has;
  if (limit.available >= 0) out += fmt::format(" (available {})", gib_text(limit.available));
  return out;
}

}  // namespace ds
