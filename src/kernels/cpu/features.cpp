// The instruction sets of this machine, and the limit that DS_MAX_ISA sets. AMX needs care: Linux
// grants tiles only on request, and the request has a side effect (may_use_tiles). So tiles are
// requested only if nothing forbids AMX.
#include "kernels/cpu/targets.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include <fmt/format.h>
#include <gnu/libc-version.h>
#include <hwy/highway.h>
#include <hwy/targets.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <string_view>

#include "core/base/error.h"
#include "core/base/version.h"
#include "kernels/cpu/features.h"
#include "kernels/kernel.h"
#include "kernels/onednn/adapter.h"

namespace ds {
namespace {

constexpr std::array kNames{"neon", "sse4", "avx2", "avx512", "avx512_bf16", "amx"};

#if defined(__x86_64__)
// The range of DS_MAX_ISA on this architecture.
constexpr Isa kLeast = Isa::sse4, kMost = Isa::amx;
// The bit of AMX-BF16 in CPUID.7.0:EDX.
constexpr unsigned kAmxBf16 = 1u << 22;

// Asks Linux for the permission to use AMX tiles, once, and returns whether it was granted. From
// then on sigaltstack() refuses stacks that have no room for the tiles.
bool may_use_tiles() {
  constexpr long kRequestPermission = 0x1023, kTileData = 18;
  static const bool granted = syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
  return granted;
}

bool has_amx() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (d & kAmxBf16) != 0 && may_use_tiles();
}

// Returns the best instruction set apart from AMX, without asking the system.
Isa vector_isa() {
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) return Isa::sse4;
  bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  if (!avx512) return Isa::avx2;
  return __builtin_cpu_supports("avx512bf16") ? Isa::avx512_bf16 : Isa::avx512;
}

// Returns Highway's targets above `isa`.
int64_t targets_above(Isa isa) {
  if (isa == Isa::sse4) return HWY_AVX3 | HWY_AVX2;
  return isa == Isa::avx2 ? HWY_AVX3 : 0;
}

#else
constexpr Isa kLeast = Isa::neon, kMost = Isa::neon;

bool has_amx() { return false; }
Isa vector_isa() { return Isa::neon; }
int64_t targets_above(Isa) { return 0; }
#endif

// Returns the instruction sets that DS_MAX_ISA may name on this architecture.
std::span<const char* const> choices() {
  return std::span(kNames).subspan(static_cast<size_t>(kLeast),
                                   static_cast<size_t>(kMost) - static_cast<size_t>(kLeast) + 1);
}

// Returns the instruction set of this name. Throws if the name is unknown; the message lists the
// choices.
Isa parse_isa(std::string_view name) {
  for (size_t i = 0; i < choices().size(); ++i) {
    if (name == choices()[i]) return static_cast<Isa>(static_cast<size_t>(kLeast) + i);
  }
  raise(DS_ERROR_INVALID_ARGUMENT, "DS_MAX_ISA must be one of {}, got '{}'",
        fmt::join(choices(), " "), name);
}

// Returns the limit that DS_MAX_ISA sets, or kMost if it is not set or is empty.
Isa limit() {
  const char* name = std::getenv("DS_MAX_ISA");
  return name && *name ? parse_isa(name) : kMost;
}

// Applies the limit to Highway and to oneDNN. Returns the reason why oneDNN refuses it, or "".
std::string limit_once() {
  Isa isa = limit();
  if (isa == kMost) return "";
  hwy::DisableTargets(targets_above(isa));
  return onednn::limit_isa(isa_name(isa));
}

// Returns why oneDNN refused the limit, or "". The first call applies the limit.
const std::string& limit_refusal() {
  static const std::string refusal = limit_once();
  return refusal;
}

// Returns the name of the best Highway target that kernels are compiled for and may use on this
// machine. A lower bit is a better target.
const char* highway_target() {
  int64_t targets = hwy::SupportedTargets() & HWY_TARGETS;
  return hwy::TargetName(targets & -targets);
}

}  // namespace

const char* isa_name(Isa isa) { return kNames[static_cast<size_t>(isa)]; }

Isa machine_isa() {
  const Isa vectors = vector_isa();
  return vectors == Isa::avx512_bf16 && has_amx() ? Isa::amx : vectors;
}

// If DS_MAX_ISA excludes AMX, the system is not asked for tiles.
Isa effective_isa() {
  const Isa most = limit();
  return most == kMost ? machine_isa() : std::min(vector_isa(), most);
}

void limit_isa_from_environment() {
  const std::string& refusal = limit_refusal();
  if (!refusal.empty()) raise(DS_ERROR_STATE, "DS_MAX_ISA={}: {}", isa_name(limit()), refusal);
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
  const auto first = choices().first(choices().size() - 1);
  return {
      isa_name(machine_isa()),
      isa_name(effective_isa()),
      limit ? limit : "",
      fmt::format("{}{}{}", fmt::join(first, ", "), first.empty() ? "" : " or ", choices().back()),
      highway_target(),
      onednn::version(),
      onednn::effective_isa()};
}

}  // namespace ds
