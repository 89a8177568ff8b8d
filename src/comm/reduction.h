#pragma once
#include <string>

#include "comm/communicator.h"

namespace ds {

inline size_t unit_of(DType wire) { return static_cast<size_t>(size_of(wire)); }

// DS_ERROR_INVALID_ARGUMENT for what cannot be reduced.
void check_reduction(DType wire, ReduceOp op);

// What ranks must agree on: "f32", "f32 mean".
std::string reduction_detail(DType wire, ReduceOp op);

}  // namespace ds
