// The libraries that kernels are made with, their instruction sets, and the limit that DS_MAX_ISA
// sets to them.
#include "kernels/cpu/targets.h"
// Highway's headers must follow targets.h.
#include <fmt/format.h>
#include <gnu/libc-version.h>
#include <hwy/highway.h>
#include <hwy/targets.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <optional>

#include "core/base/error.h"
#include "core/base/version.h"
#include "core/device/cpu_features.h"
#include "kernels/cpu/kernel_facts.h"
#include "kernels/kernel.h"
#include "kernels/onednn/adapter.h"

namespace ds {
namespace {

// Returns Highway's targets above `isa`.
int64_t targets_above(Isa isa) {
  if (isa == Isa::sse4) return HWY_AVX3 | HWY_AVX2;
  return isa == Isa::avx2 ? HWY_AVX3 : 0;
}

// Applies DS_MAX_ISA to Highway and to oneDNN. Returns the reason why oneDNN refuses it, or "".
std::string limit_once() {
  const std::optional<Isa> isa = isa_limit();
  if (!isa) return "";
  hwy::DisableTargets(targets_above(*isa));
  const std::string refusal = onednn::limit_isa(isa_name(*isa));
  return refusal.empty() ? "" : fmt::format("DS_MAX_ISA={}: {}", isa_name(*isa), refusal);
}

// Returns the name of the best Highway target that kernels are compiled for and may use on this
// machine. A lower bit is a better target.
const char* highway_target() {
  int64_t targets = hwy::SupportedTargets() & HWY_TARGETS;
  return hwy::TargetName(targets & -targets);
}

}  // namespace

void limit_isa_from_environment() {
  static const std::string refusal = limit_once();
  if (!refusal.empty()) raise(DS_ERROR_STATE, "{}", refusal);
}

std::vector<std::pair<std::string, std::string>> numerics_of_kernels(const KernelRegistry& registry,
                                                                     const std::string& device) {
  limit_isa_from_environment();
  // Kernel families, in the order in which they were registered.
  std::vector<std::string> families;
  for (const KernelImpl& impl : registry.all()) {
    if (std::find(families.begin(), families.end(), impl.name) == families.end())
      families.push_back(impl.name);
  }
  return {{"device", device},
          {"isa", isa_name(effective_isa())},
          {"kernels", fmt::format("{}/{}", fmt::join(families, ","), kernels_build())},
          {"highway", fmt::format("{}.{}/{}", HWY_MAJOR, HWY_MINOR, highway_target())},
          {"onednn", fmt::format("{}/{}", onednn::version(), onednn::effective_isa())},
          {"libc", gnu_get_libc_version()}};
}

KernelFacts kernel_facts() {
  limit_isa_from_environment();
  const char* limit = std::getenv("DS_MAX_ISA");
  const auto first = isa_choices().first(isa_choices().size() - 1);
  return {isa_name(machine_isa()),
          isa_name(effective_isa()),
          limit ? limit : "",
          fmt::format("{}{}{}", fmt::join(first, ", "), first.empty() ? "" : " or ",
                      isa_choices().back()),
          highway_target(),
          onednn::version(),
          onednn::effective_isa()};
}

}  // namespace ds
