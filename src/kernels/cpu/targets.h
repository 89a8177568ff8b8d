#pragma once
// The instruction sets that kernels are compiled for: AVX-512, AVX2, SSE4 and the baseline of
// x86-64, NEON of arm64. Include this header first. Highway's other targets are disabled, so that
// every version of it gives a machine the same kernels: SVE because kernels keep vectors in arrays,
// those above AVX-512 because pairs-inl.h and kernels/gemm have their instructions.
#define HWY_DISABLED_TARGETS \
  (~(HWY_AVX3 | HWY_AVX2 | HWY_SSE4 | HWY_NEON | HWY_EMU128 | HWY_SCALAR))
