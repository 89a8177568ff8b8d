#include <cstdint>

#include "kernels/gated.h"
#include "kernels/ref/activations.h"
#include "kernels/ref/ref.h"

namespace ds::ref {
namespace {

// y = act(gate) up
template <typename T, typename Act>
void glu(const KernelContext& c) {
  Gated<T> x(c.in);
  T* y = c.out[0].as<T>();
  for (int64_t r = 0; r < c.out[0].dims[0]; ++r) {
    for (int64_t k = 0; k < x.width; ++k) {
      int64_t e = r * x.stride + k;
      y[r * x.width + k] = static_cast<T>(Act::value(get(x.gate, e)) * get(x.up, e));
    }
  }
}

// dgate = dy up act'(gate), dup = dy act(gate)
template <typename T, typename Act>
void glu_dx(const KernelContext& c) {
  const T* dy = c.in[0].as<T>();
  Gated<T> x(c.in.subspan(1)), dx(c.out);
  for (int64_t r = 0; r < c.in[0].dims[0]; ++r) {
    for (int64_t k = 0; k < x.width; ++k) {
      int64_t e = r * x.stride + k;
      Wide<T> g = get(dy, r * x.width + k), gate = get(x.gate, e);
      dx.gate[e] = static_cast<T>(g * get(x.up, e) * Act::slope(gate));
      dx.up[e] = static_cast<T>(g * Act::value(gate));
    }
  }
}

}  // namespace

void add_glu(KernelRegistry& registry) {
  add_kernel(registry, "glu", [](const KernelContext& c) {
    by_type(c.in[0].dtype, [&](auto t) {
      by_activation(c.attrs.text("act"), [&](auto act) { glu<decltype(t), decltype(act)>(c); });
    });
  });
  add_kernel(registry, "glu_dx", [](const KernelContext& c) {
    by_type(c.in[0].dtype, [&](auto t) {
      by_activation(c.attrs.text("act"), [&](auto act) { glu_dx<decltype(t), decltype(act)>(c); });
    });
  });
}

}  // namespace ds::ref
