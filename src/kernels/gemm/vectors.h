#pragma once
#include "kernels/gemm/micro.h"

namespace ds::gemm {

// The micro-kernel of AVX512_BF16.
const Micro& vectors();

}  // namespace ds::gemm
