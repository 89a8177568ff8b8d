#pragma once
#include <concepts>
#include <type_traits>

namespace ds {

// The least number of pieces of `unit` that hold x >= 0.
template <std::integral T>
constexpr T ceil_div(T x, std::type_identity_t<T> unit) {
  return (x + unit - 1) / unit;
}

// The least multiple of `unit` that is not below x >= 0.
template <std::integral T>
constexpr T round_up(T x, std::type_identity_t<T> unit) {
  return ceil_div(x, unit) * unit;
}

}  // namespace ds
