#pragma once
#include <string>

#include "comm/communicator.h"

namespace ds {

// Returns the bytes of one element of type `wire`.
inline size_t unit_of(DType wire) { return static_cast<size_t>(size_of(wire)); }

// Throws DS_ERROR_INVALID_ARGUMENT if elements of that type cannot be reduced by `op`.
void check_reduction(DType wire, ReduceOp op);

// Returns the text on which ranks must agree, for example "f32" or "f32 mean".
std::string reduction_detail(DType wire, ReduceOp op);

}  // namespace ds
