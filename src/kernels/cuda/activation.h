#pragma once
#include <cstdint>

namespace ds::cuda {

// The activations of activation.cu, in the order of kActivations
// (kernels/formulas/activation_names.h). The host passes one of them in ElementArgs::flag.
// kernels/ref/activations.h has the formulas.
enum class Act : int32_t {
  silu = 0,
  gelu_tanh,
  gelu_erf,
  gelu_10,
  relu,
  tanh,
  relu2,
  laplace,
  sigmoid,
  quick_gelu,
  softplus
};

}  // namespace ds::cuda
