#include <string_view>

#include "kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/activation.cpp"
#include <hwy/foreach_target.h>

#include "kernels/cpu/activations-inl.h"
#include "kernels/cpu/cpu.h"

HWY_BEFORE_NAMESPACE();
namespace ds::cpu::HWY_NAMESPACE {

template <typename Act>
void forward(const KernelContext& c) {
  by_type(c.in[0].dtype, [&](auto t) { activate<decltype(t), Act>(c); });
}

template <typename Act>
void backward(const KernelContext& c) {
  by_type(c.in[0].dtype, [&](auto t) { activate_dx<decltype(t), Act>(c); });
}

void silu(const KernelContext& c) { forward<Silu>(c); }
void silu_dx(const KernelContext& c) { backward<Silu>(c); }
void tanh(const KernelContext& c) { forward<Tanh>(c); }
void tanh_dx(const KernelContext& c) { backward<Tanh>(c); }
void relu2(const KernelContext& c) { forward<Relu2>(c); }
void relu2_dx(const KernelContext& c) { backward<Relu2>(c); }
void sigmoid(const KernelContext& c) { forward<Sigmoid>(c); }
void sigmoid_dx(const KernelContext& c) { backward<Sigmoid>(c); }
void quick_gelu(const KernelContext& c) { forward<QuickGelu>(c); }
void quick_gelu_dx(const KernelContext& c) { backward<QuickGelu>(c); }
void softplus(const KernelContext& c) { forward<Softplus>(c); }
void softplus_dx(const KernelContext& c) { backward<Softplus>(c); }
void laplace(const KernelContext& c) { forward<Laplace>(c); }
void laplace_dx(const KernelContext& c) { backward<Laplace>(c); }

void gelu(const KernelContext& c) {
  std::string_view form = c.attrs.text_or("form", "tanh");
  form == "erf" ? forward<GeluErf>(c) : form == "10" ? forward<Gelu10>(c) : forward<GeluTanh>(c);
}

void gelu_dx(const KernelContext& c) {
  std::string_view form = c.attrs.text_or("form", "tanh");
  form == "erf" ? backward<GeluErf>(c) : form == "10" ? backward<Gelu10>(c) : backward<GeluTanh>(c);
}

}  // namespace ds::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ds::cpu {

HWY_EXPORT(gelu);
HWY_EXPORT(gelu_dx);
HWY_EXPORT(silu);
HWY_EXPORT(silu_dx);
HWY_EXPORT(tanh);
HWY_EXPORT(tanh_dx);
HWY_EXPORT(relu2);
HWY_EXPORT(relu2_dx);
HWY_EXPORT(sigmoid);
HWY_EXPORT(sigmoid_dx);
HWY_EXPORT(quick_gelu);
HWY_EXPORT(quick_gelu_dx);
HWY_EXPORT(softplus);
HWY_EXPORT(softplus_dx);
HWY_EXPORT(laplace);
HWY_EXPORT(laplace_dx);

void add_activation(KernelRegistry& registry) {
  add_kernel(registry, "gelu", [](const KernelContext& c) { HWY_DYNAMIC_DISPATCH(gelu)(c); });
  add_kernel(registry, "gelu_dx", [](const KernelContext& c) { HWY_DYNAMIC_DISPATCH(gelu_dx)(c); });
  add_kernel(registry, "silu", [](const KernelContext& c) { HWY_DYNAMIC_DISPATCH(silu)(c); });
  add_kernel(registry, "silu_dx", [](const KernelContext& c) { HWY_DYNAMIC_DISPATCH(silu_dx)(c); });
  add_kernel(registry, "tanh", [](const KernelContext& c) { HWY_DYNAMIC_DISPATCH(tanh)(c); });
  add_kernel(registry, "tanh_dx", [](const KernelContext& c) { HWY_DYNAMIC_DISPATCH(tanh_dx)(c); });
  add_kernel(registry, "relu2", [](const KernelContext& c) { HWY_DYNAMIC_DISPATCH(relu2)(c); });
  add_kernel(registry, "relu2_dx", [](const KernelContext& c) {
    HWY_DYNAMIC_DISPATCH(relu2_dx)(c);
  });
  add_kernel(registry, "sigmoid", [](const KernelContext& c) { HWY_DYNAMIC_DISPATCH(sigmoid)(c); });
  add_kernel(registry, "sigmoid_dx", [](const KernelContext& c) {
    HWY_DYNAMIC_DISPATCH(sigmoid_dx)(c);
  });
  add_kernel(registry, "quick_gelu", [](const KernelContext& c) {
    HWY_DYNAMIC_DISPATCH(quick_gelu)(c);
  });
  add_kernel(registry, "quick_gelu_dx", [](const KernelContext& c) {
    HWY_DYNAMIC_DISPATCH(quick_gelu_dx)(c);
  });
  add_kernel(registry, "softplus", [](const KernelContext& c) {
    HWY_DYNAMIC_DISPATCH(softplus)(c);
  });
  add_kernel(registry, "softplus_dx", [](const KernelContext& c) {
    HWY_DYNAMIC_DISPATCH(softplus_dx)(c);
  });
  add_kernel(registry, "laplace", [](const KernelContext& c) { HWY_DYNAMIC_DISPATCH(laplace)(c); });
  add_kernel(registry, "laplace_dx", [](const KernelContext& c) {
    HWY_DYNAMIC_DISPATCH(laplace_dx)(c);
  });
}

}  // namespace ds::cpu
#endif  // HWY_ONCE
