#pragma once
#include <algorithm>
#include <cmath>

namespace ds::test {

// A value and a bound of its rounding error in f32. Every operation propagates the errors of its
// operands and adds the largest error that rounding its own result to nearest can cause (running
// error analysis: Higham, "Accuracy and Stability of Numerical Algorithms", 2nd ed., section 3.3).
struct Bounded {
  double value = 0, error = 0;

  // Returns x with the error of rounding it to f32 once. exact() is for values that f32 can
  // represent.
  static Bounded rounded(double x) { return {x, kUnit * std::abs(x) + kLeast}; }
  static Bounded exact(double x) { return {x, 0}; }

  bool holds(double x) const { return std::abs(x - value) <= error; }
  double magnitude() const { return std::abs(value) + error; }

  static constexpr double kUnit = 0x1p-24, kLeast = 0x1p-149;
  // The error of a value about which nothing is known.
  static constexpr double kUnknown = 1e30;
};

inline Bounded with_rounding(double value, double error) {
  return {value, error + Bounded::kUnit * (std::abs(value) + error) + Bounded::kLeast};
}

inline Bounded operator+(Bounded a, Bounded b) {
  return with_rounding(a.value + b.value, a.error + b.error);
}

inline Bounded operator-(Bounded a, Bounded b) { return a + Bounded{-b.value, b.error}; }

inline Bounded operator*(Bounded a, Bounded b) {
  return with_rounding(a.value * b.value, a.error * b.magnitude() + std::abs(a.value) * b.error);
}

inline Bounded operator/(Bounded a, Bounded b) {
  double least = std::abs(b.value) - b.error, quotient = a.value / b.value;
  if (!(least > 0)) return {b.value == 0 ? 0 : quotient, Bounded::kUnknown};
  return with_rounding(quotient, (a.error + std::abs(quotient) * b.error) / least);
}

inline Bounded sqrt(Bounded a) {
  double root = std::sqrt(a.value), low = std::sqrt(std::max(0.0, a.value - a.error));
  return with_rounding(root, std::max(root - low, std::sqrt(a.value + a.error) - root));
}

// Returns size with the sign of `sign`. If that sign is unknown, the error covers both.
inline Bounded copysign(Bounded size, Bounded sign) {
  bool known = std::abs(sign.value) > sign.error || sign.error == 0;
  return {std::copysign(size.value, sign.value), known ? size.error : 2 * size.magnitude()};
}

}  // namespace ds::test
