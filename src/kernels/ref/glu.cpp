// Gated linear units (Shazeer, "GLU Variants Improve Transformer", arXiv:2002.05202).
#include <cstdint>

#include "kernels/formulas/gated.h"
#include "kernels/ref/activations.h"
#include "kernels/ref/ref.h"

namespace ds::ref {
namespace {

// y = act(gate) up
template <typename T, typename Act>
void glu_of(const KernelContext& c) {
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
void glu_dx_of(const KernelContext& c) {
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

template <typename T>
void glu(const KernelContext& c) {
  by_activation(c.attrs.text("act"), [&](auto act) { glu_of<T, decltype(act)>(c); });
}
template <typename T>
void glu_dx(const KernelContext& c) {
  by_activation(c.attrs.text("act"), [&](auto act) { glu_dx_of<T, decltype(act)>(c); });
}

}  // namespace

void add_glu(KernelRegistry& registry) {
  add_by_type(registry, "glu", []<typename T>() { return glu<T>; });
  add_by_type(registry, "glu_dx", []<typename T>() { return glu_dx<T>; });
}

}  // namespace ds::ref
