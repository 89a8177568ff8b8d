#pragma once
#include <cstdint>
#include <string>

namespace ds::cuda {

// What a product of cuBLASLt may use of a stream's scratch while it runs.
constexpr int64_t kProductScratch = int64_t{32} << 20;

// Products are cuBLASLt's from here on (use_products), if it is there: DS_CUDA_BLAS, or the library
// under its usual names. Else they stay our own. Says which, for the numerics key:
// "cuBLASLt-130002", with its version, or "own-products".
std::string use_blas();

}  // namespace ds::cuda
