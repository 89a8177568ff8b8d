#include <cstdint>
#include <string>
#include <string_view>

#include "kernels/ref/activations.h"
#include "kernels/ref/ref.h"

namespace ds::ref {
namespace {

// y = Act(x)
template <typename T, typename Act>
void activate(const KernelContext& c) {
  const T* x = c.in[0].as<T>();
  T* y = c.out[0].as<T>();
  for (int64_t e = 0; e < c.in[0].numel(); ++e) y[e] = static_cast<T>(Act::value(get(x, e)));
}

// dx = dy Act'(x)
template <typename T, typename Act>
void activate_dx(const KernelContext& c) {
  const T *dy = c.in[0].as<T>(), *x = c.in[1].as<T>();
  T* dx = c.out[0].as<T>();
  for (int64_t e = 0; e < c.in[0].numel(); ++e)
    dx[e] = static_cast<T>(get(dy, e) * Act::slope(get(x, e)));
}

template <typename Act>
void add(KernelRegistry& registry, const std::string& op) {
  add_kernel(registry, op, [](const KernelContext& c) {
    by_type(c.in[0].dtype, [&](auto t) { activate<decltype(t), Act>(c); });
  });
  add_kernel(registry, op + "_dx", [](const KernelContext& c) {
    by_type(c.in[0].dtype, [&](auto t) { activate_dx<decltype(t), Act>(c); });
  });
}

// gelu's attribute `form`.
template <typename F>
void by_form(const KernelContext& c, F f) {
  std::string_view form = c.attrs.text_or("form", "tanh");
  if (form == "erf") return f(GeluErf{});
  form == "10" ? f(Gelu10{}) : f(GeluTanh{});
}

}  // namespace

void add_activation(KernelRegistry& registry) {
  add<Silu>(registry, "silu");
  add<Tanh>(registry, "tanh");
  add<Relu2>(registry, "relu2");
  add<Laplace>(registry, "laplace");
  add<Sigmoid>(registry, "sigmoid");
  add<QuickGelu>(registry, "quick_gelu");
  add<Softplus>(registry, "softplus");
  add_kernel(registry, "gelu", [](const KernelContext& c) {
    by_type(c.in[0].dtype, [&](auto t) {
      by_form(c, [&](auto act) { activate<decltype(t), decltype(act)>(c); });
    });
  });
  add_kernel(registry, "gelu_dx", [](const KernelContext& c) {
    by_type(c.in[0].dtype, [&](auto t) {
      by_form(c, [&](auto act) { activate_dx<decltype(t), decltype(act)>(c); });
    });
  });
}

}  // namespace ds::ref
