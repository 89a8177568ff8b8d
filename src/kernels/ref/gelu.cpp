#include "kernels/ref/activations.h"
#include "kernels/ref/ref.h"

namespace ds::ref {
namespace {

// y = Form(x)
template <typename T, typename Form>
void gelu(const KernelContext& c) {
  const T* x = c.in[0].as<T>();
  T* y = c.out[0].as<T>();
  for (int64_t e = 0; e < c.in[0].numel(); ++e) y[e] = static_cast<T>(Form::value(get(x, e)));
}

// dx = dy Form'(x)
template <typename T, typename Form>
void gelu_dx(const KernelContext& c) {
  const T *dy = c.in[0].as<T>(), *x = c.in[1].as<T>();
  T* dx = c.out[0].as<T>();
  for (int64_t e = 0; e < c.in[0].numel(); ++e) dx[e] = static_cast<T>(get(dy, e) * Form::slope(get(x, e)));
}

bool is_erf(const KernelContext& c) { return c.attrs.text_or("form", "tanh") == "erf"; }

}  // namespace

void add_gelu(KernelRegistry& registry) {
  add_kernel(registry, "gelu", [](const KernelContext& c) {
    by_type(c.in[0].dtype, [&](auto t) {
      using T = decltype(t);
      is_erf(c) ? gelu<T, GeluErf>(c) : gelu<T, GeluTanh>(c);
    });
  });
  add_kernel(registry, "gelu_dx", [](const KernelContext& c) {
    by_type(c.in[0].dtype, [&](auto t) {
      using T = decltype(t);
      is_erf(c) ? gelu_dx<T, GeluErf>(c) : gelu_dx<T, GeluTanh>(c);
    });
  });
}

}  // namespace ds::ref
