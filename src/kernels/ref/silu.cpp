#include "kernels/ref/activations.h"
#include "kernels/ref/ref.h"

namespace ds::ref {
namespace {

// y = x / (1 + exp(-x))
template <typename T>
void silu(const KernelContext& c) {
  const T* x = c.in[0].as<T>();
  T* y = c.out[0].as<T>();
  for (int64_t e = 0; e < c.in[0].numel(); ++e) y[e] = static_cast<T>(Silu::value(get(x, e)));
}

// dx = dy silu'(x)
template <typename T>
void silu_dx(const KernelContext& c) {
  const T *dy = c.in[0].as<T>(), *x = c.in[1].as<T>();
  T* dx = c.out[0].as<T>();
  for (int64_t e = 0; e < c.in[0].numel(); ++e) dx[e] = static_cast<T>(get(dy, e) * Silu::slope(get(x, e)));
}

}  // namespace

void add_silu(KernelRegistry& registry) {
  add_kernel(registry, "silu",
             [](const KernelContext& c) { by_type(c.in[0].dtype, [&](auto t) { silu<decltype(t)>(c); }); });
  add_kernel(registry, "silu_dx", [](const KernelContext& c) {
    by_type(c.in[0].dtype, [&](auto t) { silu_dx<decltype(t)>(c); });
  });
}

}  // namespace ds::ref
