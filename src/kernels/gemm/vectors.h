#pragma once
#include "kernels/gemm/micro.h"

namespace ds::gemm {

const Micro& vectors();  // AVX512_BF16

}  // namespace ds::gemm
