#pragma once
#include <concepts>
#include <type_traits>

namespace ds {

// Returns the smallest number of pieces of `unit` that cover x >= 0.
template <std::integral T>
constexpr T ceil_div(T x, std::type_identity_t<T> unit) {
  return (x + unit - 1) / unit;
}

// Returns the smallest multiple of `unit` that is at least x >= 0.
template <std::integral T>
constexpr T round_up(T x, std::type_identity_t<T> unit) {
  return ceil_div(x, unit) * unit;
}

}  // namespace ds
