#pragma once
#include <cstdint>

#include "core/device/view.h"
#include "core/program/program.h"

namespace ds {

// Returns a view with the type and extents of an operand at extent n. Its data pointer is null.
TensorView operand_view(const Operand& operand, int64_t n);

// Returns the part of a view that belongs to elements [begin, end) of an update with `total`
// elements. The view has one value for each element of the update, or a fixed number of values for
// each granule. begin and end are multiples of the granule.
TensorView part_of_update(TensorView view, int64_t begin, int64_t end, int64_t total);

}  // namespace ds
