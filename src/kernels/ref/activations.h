#pragma once
#include <algorithm>
#include <cmath>
#include <numbers>
#include <string_view>

#include "kernels/formulas/activation_names.h"

namespace ds::ref {

// The activations, for their ops and for glu. Each is a pair of functions in the arithmetic type A:
// value, whose formula precedes the type, and slope, its derivative.

// 0.5 x (1 + tanh(u)), where u = sqrt(2/pi) (x + 0.044715 x^3): Hendrycks and Gimpel, "Gaussian
// Error Linear Units", arXiv:1606.08415.
struct GeluTanh {
  static constexpr double kScale = 0.7978845608028654;  // sqrt(2 / pi)
  static constexpr double kCubic = 0.044715;

  template <typename A>
  static A value(A x) {
    A u = A(kScale) * (x + A(kCubic) * x * x * x);
    return A(0.5) * x * (1 + std::tanh(u));
  }
  // 0.5 (1 + t) + 0.5 x (1 - t^2) u', where t = tanh(u) and u' = sqrt(2/pi) (1 + 3 0.044715 x^2).
  template <typename A>
  static A slope(A x) {
    A t = std::tanh(A(kScale) * (x + A(kCubic) * x * x * x));
    A inner = A(kScale) * (1 + 3 * A(kCubic) * x * x);
    return A(0.5) * (1 + t) + A(0.5) * x * (1 - t * t) * inner;
  }
};

// x P, where P = 0.5 (1 + erf(x / sqrt(2))) is the normal distribution function. It is computed as
// 0.5 erfc(-x / sqrt(2)), which does not cancel for negative x.
struct GeluErf {
  template <typename A>
  static A chance(A x) {
    return A(0.5) * std::erfc(-x * A(1 / std::numbers::sqrt2));
  }
  template <typename A>
  static A value(A x) {
    return x * chance(x);
  }
  // P + x exp(-x^2 / 2) / sqrt(2 pi)
  template <typename A>
  static A slope(A x) {
    constexpr double kDensity = std::numbers::inv_sqrtpi / std::numbers::sqrt2;
    return chance(x) + x * A(kDensity) * std::exp(A(-0.5) * x * x);
  }
};

// min(GeluErf, 10).
struct Gelu10 {
  template <typename A>
  static A value(A x) {
    return std::min(GeluErf::value(x), A(10));
  }
  template <typename A>
  static A slope(A x) {
    return GeluErf::value(x) > 10 ? A(0) : GeluErf::slope(x);
  }
};

// x s, where s = 1 / (1 + exp(-x)).
struct Silu {
  template <typename A>
  static A value(A x) {
    return x / (1 + std::exp(-x));
  }
  // s (1 + x (1 - s))
  template <typename A>
  static A slope(A x) {
    A s = 1 / (1 + std::exp(-x));
    return s * (1 + x * (1 - s));
  }
};

// max(x, 0)
struct Relu {
  template <typename A>
  static A value(A x) {
    return x > 0 ? x : A(0);
  }
  template <typename A>
  static A slope(A x) {
    return x > 0 ? A(1) : A(0);
  }
};

// tanh(x)
struct Tanh {
  template <typename A>
  static A value(A x) {
    return std::tanh(x);
  }
  // 1 - tanh(x)^2, computed as 4 e / (1 + e)^2 with e = exp(-2 |x|) so that nothing cancels.
  template <typename A>
  static A slope(A x) {
    A e = std::exp(-2 * std::abs(x)), sum = 1 + e;
    return 4 * e / (sum * sum);
  }
};

// max(x, 0)^2
struct Relu2 {
  template <typename A>
  static A value(A x) {
    return x > 0 ? x * x : A(0);
  }
  template <typename A>
  static A slope(A x) {
    return x > 0 ? 2 * x : A(0);
  }
};

// P(z) of GeluErf, where z = (x - m) / s (Ma et al., "Mega", arXiv:2209.10655, with the digits of m
// and s that Transformers uses).
struct Laplace {
  static constexpr double kMean = 0.707107, kDeviation = 0.282095;

  template <typename A>
  static A place(A x) {
    return (x - A(kMean)) / A(kDeviation);
  }
  template <typename A>
  static A value(A x) {
    return GeluErf::chance(place(x));
  }
  // exp(-z^2 / 2) / (s sqrt(2 pi))
  template <typename A>
  static A slope(A x) {
    constexpr double kDensity = std::numbers::inv_sqrtpi / std::numbers::sqrt2;
    A z = place(x);
    return A(kDensity / kDeviation) * std::exp(A(-0.5) * z * z);
  }
};

// 1 / (1 + exp(-x))
struct Sigmoid {
  template <typename A>
  static A value(A x) {
    return 1 / (1 + std::exp(-x));
  }
  // e / (1 + e)^2, where e = exp(-|x|)
  template <typename A>
  static A slope(A x) {
    A e = std::exp(-std::abs(x)), sum = 1 + e;
    return e / (sum * sum);
  }
};

// x s, where s = 1 / (1 + exp(-1.702 x)).
struct QuickGelu {
  static constexpr double kSteep = 1.702;

  template <typename A>
  static A value(A x) {
    return x / (1 + std::exp(A(-kSteep) * x));
  }
  // s (1 + 1.702 x (1 - s))
  template <typename A>
  static A slope(A x) {
    A s = 1 / (1 + std::exp(A(-kSteep) * x));
    return s * (1 + A(kSteep) * x * (1 - s));
  }
};

// log(1 + exp(x)), as max(x, 0) + log(1 + exp(-|x|)), which does not overflow.
struct Softplus {
  template <typename A>
  static A value(A x) {
    return (x > 0 ? x : A(0)) + std::log1p(std::exp(-std::abs(x)));
  }
  template <typename A>
  static A slope(A x) {
    return Sigmoid::value(x);
  }
};

// Calls f with the activation that attribute `act` of glu names.
template <typename F>
void by_activation(std::string_view act, F f) {
  by_activation_among<Silu, GeluTanh, GeluErf, Gelu10, Relu, Tanh, Relu2, Laplace, Sigmoid,
                      QuickGelu, Softplus>(act, f);
}

}  // namespace ds::ref
