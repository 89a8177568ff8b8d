#pragma once
#include <cstdint>
#include <string>

namespace ds::cuda {

// The number of bytes of scratch memory that a matrix product of cuBLASLt may use while it runs on
// a stream.
constexpr int64_t kProductScratch = int64_t{32} << 20;

// Selects cuBLASLt for all later matrix products (use_products()), if the library that DS_CUDA_BLAS
// names can be opened or, if the variable is not set, one under its usual names. Otherwise this
// folder's own kernel computes them. Returns which of the two computes products, as a part of the
// numerics key: "cuBLASLt-" and its version, such as "cuBLASLt-130002", or "own-products".
std::string use_blas();

}  // namespace ds::cuda
