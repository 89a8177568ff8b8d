#pragma once
#include <algorithm>
#include <cstddef>
#include <iterator>
#include <string_view>

#include "core/base/error.h"

namespace ds {

// The values of attribute `act` of `glu`.
inline constexpr std::string_view kActivations[] = {"silu",    "gelu_tanh",  "gelu_erf", "gelu_10",
                                                    "relu",    "tanh",       "relu2",    "laplace",
                                                    "sigmoid", "quick_gelu", "softplus"};

// Returns the index of `act` in kActivations. Throws if the name is unknown.
inline size_t number_of_activation(std::string_view act) {
  const auto* found = std::find(std::begin(kActivations), std::end(kActivations), act);
  ensure(found != std::end(kActivations), "activation '{}' is not known", act);
  return static_cast<size_t>(found - kActivations);
}

// Calls f with an object of the activation type that `act` names. Acts are the types of a kernel
// family, in the order of kActivations.
template <typename... Acts, typename F>
void by_activation_among(std::string_view act, const F& f) {
  static_assert(sizeof...(Acts) == std::size(kActivations));
  size_t left = number_of_activation(act) + 1;
  ((--left == 0 ? f(Acts()) : void()), ...);
}

}  // namespace ds
