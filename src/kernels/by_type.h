#pragma once
#include <string_view>
#include <type_traits>

#include "core/base/dtype.h"
#include "core/base/error.h"

namespace ds {

// The dtype of elements of C++ type T: float, bf16, f16 or double.
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

// Calls f with a value of the C++ type of `dtype`, which must be one of Types.
template <typename... Types, typename F>
void by_type_among(std::string_view family, DType dtype, const F& f) {
  auto attempt = [&](auto value) {
    if (dtype != dtype_of<decltype(value)>()) return false;
    f(value);
    return true;
  };
  bool found = (attempt(Types{}) || ...);
  ensure(found, "{} kernels do not take {}", family, dtype_name(dtype));
}

}  // namespace ds
