#pragma once
#include <cstddef>
#include <string_view>
#include <type_traits>

#include "core/base/dtype.h"
#include "core/base/error.h"
#include "kernels/kernel.h"

namespace ds {

// Returns the dtype of elements of C++ type T: float, bf16, f16 or double.
template <typename T>
constexpr DType dtype_of() {
  if constexpr (std::is_same_v<T, float>) {
    return DS_DTYPE_F32;
  } else if constexpr (std::is_same_v<T, bf16>) {
    return DS_DTYPE_BF16;
  } else if constexpr (std::is_same_v<T, f16>) {
    return DS_DTYPE_F16;
  } else {
    static_assert(std::is_same_v<T, double>);
    return DS_DTYPE_F64;
  }
}

// Calls f with a value of the C++ type of `dtype`, which must be one of Types. `family` is named in
// the error.
template <typename... Types, typename F>
void by_type_among(std::string_view family, DType dtype, const F& f) {
  auto attempt = [&](auto value) {
    if (dtype != dtype_of<decltype(value)>()) return false;
    f(value);
    return true;
  };
  bool found = (attempt(Types{}) || ...);
  ensure(found, "{} kernels do not support elements of type {}", family, dtype_name(dtype));
}

// Return the type of an operand, or of a result, of a launch. add_by_type() of kernels/cpu and
// kernels/ref use them to choose the kernel by type.
template <size_t index>
DType in_type(const KernelContext& c) {
  return c.in[index].dtype;
}
template <size_t index>
DType out_type(const KernelContext& c) {
  return c.out[index].dtype;
}

// A function that registers kernels.
using Registration = void(KernelRegistry& registry);

}  // namespace ds
