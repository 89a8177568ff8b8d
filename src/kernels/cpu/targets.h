#pragma once
// The instruction sets that kernels are compiled for: AVX-512, AVX2, SSE4 and the baseline of
// x86-64, and NEON of arm64. Include this header first. Highway's other targets are disabled, so
// that a machine runs the same kernels with every version of Highway. SVE is disabled because
// kernels store vectors in arrays, and the targets above AVX-512 because pairs-inl.h and
// kernels/gemm already use their instructions.
#define HWY_DISABLED_TARGETS \
  (~(HWY_AVX3 | HWY_AVX2 | HWY_SSE4 | HWY_NEON | HWY_EMU128 | HWY_SCALAR))
