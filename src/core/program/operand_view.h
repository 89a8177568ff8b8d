#pragma once
#include <cstdint>

#include "core/device/view.h"
#include "core/program/program.h"

namespace ds {

// Type and extents of an operand with n tokens; its data are null.
TensorView operand_view(const Operand& operand, int64_t n);

}  // namespace ds
