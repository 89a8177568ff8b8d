#include <cmath>
#include <cstdint>

#include "kernels/ref/ref.h"

namespace ds::ref {
namespace {

// y = cap tanh(x / cap)
template <typename T>
void softcap(const KernelContext& c) {
  const T* x = c.in[0].as<T>();
  T* y = c.out[0].as<T>();
  Wide<T> cap = static_cast<Wide<T>>(c.attrs.real("cap"));
  for (int64_t e = 0; e < c.in[0].numel(); ++e)
    y[e] = static_cast<T>(cap * std::tanh(get(x, e) / cap));
}

// dx = dy (1 - (y / cap)^2)
template <typename T>
void softcap_dx(const KernelContext& c) {
  const T *dy = c.in[0].as<T>(), *y = c.in[1].as<T>();
  T* dx = c.out[0].as<T>();
  Wide<T> cap = static_cast<Wide<T>>(c.attrs.real("cap"));
  for (int64_t e = 0; e < c.in[0].numel(); ++e) {
    Wide<T> t = get(y, e) / cap;
    dx[e] = static_cast<T>(get(dy, e) * (1 - t * t));
  }
}

}  // namespace

void add_softcap(KernelRegistry& registry) {
  add_kernel(registry, "softcap", [](const KernelContext& c) {
    by_type(c.in[0].dtype, [&](auto t) { softcap<decltype(t)>(c); });
  });
  add_kernel(registry, "softcap_dx", [](const KernelContext& c) {
    by_type(c.in[0].dtype, [&](auto t) { softcap_dx<decltype(t)>(c); });
  });
}

}  // namespace ds::ref
