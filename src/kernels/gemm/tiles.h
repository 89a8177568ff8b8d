#pragma once
#include "kernels/gemm/micro.h"

namespace ds::gemm {

// The micro-kernel of AMX.
const Micro& tiles();

}  // namespace ds::gemm
