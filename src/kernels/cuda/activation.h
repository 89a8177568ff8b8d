#pragma once
#include <cstdint>

namespace ds::cuda {

// Activations of activation.cu, in ElementArgs::flag.
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
