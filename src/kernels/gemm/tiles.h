#pragma once
#include "kernels/gemm/micro.h"

namespace ds::gemm {

const Micro& tiles();  // AMX

}  // namespace ds::gemm
