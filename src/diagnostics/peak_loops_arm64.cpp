#include <cstdint>
#include <vector>

#include "core/device/cpu_features.h"
#include "diagnostics/peak_loops.h"

namespace ds {
namespace {

// Executes kChains independent fused multiply-adds of vectors of four floats, all zero, `turns`
// times.
void f32_neon(long turns) {
  asm volatile(
      "movi v0.4s, #0\n"
      "movi v1.4s, #0\n"
      "movi v2.4s, #0\n"
      "movi v3.4s, #0\n"
      "movi v4.4s, #0\n"
      "movi v5.4s, #0\n"
      "movi v6.4s, #0\n"
      "movi v7.4s, #0\n"
      "movi v8.4s, #0\n"
      "movi v9.4s, #0\n"
      "movi v10.4s, #0\n"
      "movi v11.4s, #0\n"
      "movi v14.4s, #0\n"
      "movi v15.4s, #0\n"
      "1:\n"
      "fmla v0.4s, v14.4s, v15.4s\n"
      "fmla v1.4s, v14.4s, v15.4s\n"
      "fmla v2.4s, v14.4s, v15.4s\n"
      "fmla v3.4s, v14.4s, v15.4s\n"
      "fmla v4.4s, v14.4s, v15.4s\n"
      "fmla v5.4s, v14.4s, v15.4s\n"
      "fmla v6.4s, v14.4s, v15.4s\n"
      "fmla v7.4s, v14.4s, v15.4s\n"
      "fmla v8.4s, v14.4s, v15.4s\n"
      "fmla v9.4s, v14.4s, v15.4s\n"
      "fmla v10.4s, v14.4s, v15.4s\n"
      "fmla v11.4s, v14.4s, v15.4s\n"
      "subs %0, %0, #1\n b.ne 1b\n"
      : "+r"(turns)
      :
      : "v0", "v1", "v2", "v3", "v4", "v5", "v6", "v7", "v8", "v9", "v10", "v11", "v14", "v15",
        "cc");
}

}  // namespace

FlopLoop f32_loop(Isa) { return {f32_neon, 8}; }

// There are no loops for bf16 here, so the rate of f32 is used for bf16.
std::vector<FlopLoop> bf16_loops(Isa) { return {}; }

void triad(double* a, const double* b, const double* c, int64_t count) {
  for (int64_t i = 0; i < count; ++i) a[i] = b[i] + 3.0 * c[i];
}

}  // namespace ds
