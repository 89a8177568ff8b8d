#pragma once
#include "kernels/cuda/kernel.h"
#include "kernels/matrix_product.h"

namespace ds::cuda {

// Products inside of other kernels: linear_cross_entropy makes logits and their gradients' products
// by blocks. The plugin may bring a library's; without one they are this folder's own (loss.cu,
// `product`).
using Multiply = void (*)(Launcher& launcher, const MatrixProduct& product);
void use_products(Multiply multiply);  // null: our own
void multiply(Launcher& launcher, const MatrixProduct& product);
void own_multiply(Launcher& launcher, const MatrixProduct& product);

}  // namespace ds::cuda
