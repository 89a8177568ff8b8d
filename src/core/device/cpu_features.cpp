// The instruction sets of this machine, and the limit that DS_MAX_ISA sets. AMX needs care: Linux
// grants tiles only on request, and the request has a side effect (may_use_tiles). So tiles are
// requested only if nothing forbids AMX.
#include "core/device/cpu_features.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include <fmt/format.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdlib>
#include <string_view>

#include "core/base/error.h"

namespace ds {
namespace {

constexpr std::array kIsaNames{"neon", "sse4", "avx2", "avx512", "avx512_bf16", "amx"};

#if defined(__x86_64__)
// The range of DS_MAX_ISA on this architecture.
constexpr Isa kLeastIsa = Isa::sse4, kMostIsa = Isa::amx;
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

#else
constexpr Isa kLeastIsa = Isa::neon, kMostIsa = Isa::neon;

bool has_amx() { return false; }
Isa vector_isa() { return Isa::neon; }
#endif

// Returns the instruction set of this name. Throws if the name is unknown; the message lists the
// choices.
Isa parse_isa(std::string_view name) {
  const std::span<const char* const> choices = isa_choices();
  for (size_t i = 0; i < choices.size(); ++i) {
    if (name == choices[i]) return static_cast<Isa>(static_cast<size_t>(kLeastIsa) + i);
  }
  raise(DS_ERROR_INVALID_ARGUMENT, "DS_MAX_ISA must be one of {}, got '{}'",
        fmt::join(choices, " "), name);
}

}  // namespace

const char* isa_name(Isa isa) { return kIsaNames[static_cast<size_t>(isa)]; }

std::span<const char* const> isa_choices() {
  constexpr size_t kLeast = static_cast<size_t>(kLeastIsa), kMost = static_cast<size_t>(kMostIsa);
  return std::span(kIsaNames).subspan(kLeast, kMost - kLeast + 1);
}

std::optional<Isa> isa_limit() {
  const char* name = std::getenv("DS_MAX_ISA");
  if (!name || !*name) return std::nullopt;
  const Isa isa = parse_isa(name);
  return isa == kMostIsa ? std::nullopt : std::optional(isa);
}

Isa machine_isa() {
  const Isa vectors = vector_isa();
  return vectors == Isa::avx512_bf16 && has_amx() ? Isa::amx : vectors;
}

// If DS_MAX_ISA excludes AMX, the system is not asked for tiles.
Isa effective_isa() {
  const std::optional<Isa> limit = isa_limit();
  return limit ? std::min(vector_isa(), *limit) : machine_isa();
}

}  // namespace ds
