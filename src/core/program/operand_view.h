#pragma once
#include <cstdint>

#include "core/device/view.h"
#include "core/program/program.h"

namespace ds {

// Type and extents of an operand with n tokens; its data are null.
TensorView operand_view(const Operand& operand, int64_t n);

// What elements [begin, end) of an update's `total` are in an operand that has an element for each
// of them, or a fixed number for each granule; runs begin and end at granules.
TensorView part_of_update(TensorView view, int64_t begin, int64_t end, int64_t total);

}  // namespace ds
