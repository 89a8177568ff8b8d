#pragma once
// Instruction sets that kernels are compiled for: AVX-512, AVX2, SSE4 and the baseline. Include first.
#define HWY_DISABLED_TARGETS HWY_SSSE3
