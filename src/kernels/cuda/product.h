#pragma once
#include "kernels/cuda/kernel.h"
#include "kernels/matrix_product.h"

namespace ds::cuda {

using Multiply = void (*)(Launcher& launcher, const MatrixProduct& product);
// Installs the function that computes all matrix products, in linear and its gradients and inside
// linear_cross_entropy. The plugin installs a function that calls cuBLASLt. Null, the default,
// selects this folder's own kernel (`product` of loss.cu).
void use_products(Multiply multiply);
// Enqueues a matrix product, computed by the installed function.
void multiply(Launcher& launcher, const MatrixProduct& product);
// Enqueues a matrix product, computed by this folder's own kernel.
void own_multiply(Launcher& launcher, const MatrixProduct& product);

}  // namespace ds::cuda
