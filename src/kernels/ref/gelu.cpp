#include <cmath>

#include "kernels/ref/ref.h"

namespace ds::ref {
namespace {

constexpr double kScale = 0.7978845608028654;  // sqrt(2 / pi)
constexpr double kCubic = 0.044715;

// y = 0.5 x (1 + tanh(u)), u = sqrt(2/pi) (x + 0.044715 x^3)
template <typename T>
void gelu(const KernelContext& c) {
  using A = Wide<T>;
  const T* in = c.in[0].as<T>();
  T* y = c.out[0].as<T>();
  for (int64_t e = 0; e < c.in[0].numel(); ++e) {
    A x = get(in, e);
    A u = A(kScale) * (x + A(kCubic) * x * x * x);
    y[e] = static_cast<T>(A(0.5) * x * (1 + std::tanh(u)));
  }
}

// dx = dy (0.5 (1 + t) + 0.5 x (1 - t^2) u'), t = tanh(u), u' = sqrt(2/pi) (1 + 3 0.044715 x^2)
template <typename T>
void gelu_dx(const KernelContext& c) {
  using A = Wide<T>;
  const T *dy = c.in[0].as<T>(), *in = c.in[1].as<T>();
  T* dx = c.out[0].as<T>();
  for (int64_t e = 0; e < c.in[0].numel(); ++e) {
    A x = get(in, e);
    A t = std::tanh(A(kScale) * (x + A(kCubic) * x * x * x));
    A slope = A(kScale) * (1 + 3 * A(kCubic) * x * x);
    dx[e] = static_cast<T>(get(dy, e) * (A(0.5) * (1 + t) + A(0.5) * x * (1 - t * t) * slope));
  }
}

}  // namespace

void add_gelu(KernelRegistry& registry) {
  add_kernel(registry, "gelu",
             [](const KernelContext& c) { by_type(c.in[0].dtype, [&](auto t) { gelu<decltype(t)>(c); }); });
  add_kernel(registry, "gelu_dx", [](const KernelContext& c) {
    by_type(c.in[0].dtype, [&](auto t) { gelu_dx<decltype(t)>(c); });
  });
}

}  // namespace ds::ref
