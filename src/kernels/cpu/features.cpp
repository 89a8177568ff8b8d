#include "kernels/cpu/features.h"

#include <cpuid.h>
#include <hwy/targets.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <string_view>

#include "core/base/error.h"
#include "kernels/onednn/adapter.h"

namespace ds {
namespace {

constexpr std::array<const char*, 5> kNames{"sse4", "avx2", "avx512", "avx512_bf16", "amx"};
constexpr unsigned kAmxBf16 = 1u << 22;  // CPUID.7.0:EDX

bool has_amx() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (d & kAmxBf16) != 0;
}

Isa parse_isa(std::string_view name) {
  for (size_t i = 0; i < kNames.size(); ++i) {
    if (name == kNames[i]) return static_cast<Isa>(i);
  }
  raise(DS_ERROR_INVALID_ARGUMENT, "DS_MAX_ISA must be one of sse4 avx2 avx512 avx512_bf16 amx, got '{}'",
        name);
}

Isa limit() {
  const char* name = std::getenv("DS_MAX_ISA");
  return name && *name ? parse_isa(name) : Isa::amx;
}

// Highway's targets above `isa`.
int64_t targets_above(Isa isa) {
  int64_t avx512 = HWY_AVX3 | HWY_AVX3_DL;
  if (isa == Isa::sse4) return avx512 | HWY_AVX2;
  return isa == Isa::avx2 ? avx512 : 0;
}

std::string limit_once() {
  Isa isa = limit();
  if (isa == Isa::amx) return "";
  hwy::DisableTargets(targets_above(isa));
  return onednn::limit_isa(isa_name(isa));
}

// Why the limit did not reach oneDNN; "" when it did. The limit is applied by the first call.
const std::string& limit_refusal() {
  static const std::string refusal = limit_once();
  return refusal;
}

}  // namespace

const char* isa_name(Isa isa) { return kNames[static_cast<size_t>(isa)]; }

Isa machine_isa() {
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) return Isa::sse4;
  bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  if (!avx512) return Isa::avx2;
  if (!__builtin_cpu_supports("avx512bf16")) return Isa::avx512;
  return has_amx() ? Isa::amx : Isa::avx512_bf16;
}

Isa effective_isa() { return std::min(machine_isa(), limit()); }

void limit_isa_from_environment() {
  const std::string& refusal = limit_refusal();
  if (!refusal.empty()) raise(DS_ERROR_STATE, "DS_MAX_ISA={}: {}", isa_name(limit()), refusal);
}

std::vector<std::string> kernel_report() {
  limit_isa_from_environment();
  int64_t targets = hwy::SupportedTargets() & HWY_TARGETS;  // those that kernels may be compiled for
  int64_t best = targets & -targets;                        // a lower bit is a better target
  const char* set = std::getenv("DS_MAX_ISA");
  return {fmt::format("instruction sets  machine {}, in use {} (limit DS_MAX_ISA: {}; sse4, avx2, avx512, "
                      "avx512_bf16 or amx)",
                      isa_name(machine_isa()), isa_name(effective_isa()), set && *set ? set : "not set"),
          fmt::format("Highway           {}", hwy::TargetName(best)),
          fmt::format("oneDNN            {}, {}", onednn::version(), onednn::effective_isa())};
}

}  // namespace ds
