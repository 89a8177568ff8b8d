#include "kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/gelu.cpp"
#include <hwy/foreach_target.h>

#include "kernels/cpu/activations-inl.h"
#include "kernels/cpu/cpu.h"

HWY_BEFORE_NAMESPACE();
namespace ds::cpu::HWY_NAMESPACE {

bool is_erf(const KernelContext& c) { return c.attrs.text_or("form", "tanh") == "erf"; }

void gelu(const KernelContext& c) {
  by_type(c.in[0].dtype, [&](auto t) {
    using T = decltype(t);
    is_erf(c) ? activate<T, GeluErf>(c) : activate<T, GeluTanh>(c);
  });
}

void gelu_dx(const KernelContext& c) {
  by_type(c.in[0].dtype, [&](auto t) {
    using T = decltype(t);
    is_erf(c) ? activate_dx<T, GeluErf>(c) : activate_dx<T, GeluTanh>(c);
  });
}

}  // namespace ds::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ds::cpu {

HWY_EXPORT(gelu);
HWY_EXPORT(gelu_dx);

void add_gelu(KernelRegistry& registry) {
  add_kernel(registry, "gelu", [](const KernelContext& c) { HWY_DYNAMIC_DISPATCH(gelu)(c); });
  add_kernel(registry, "gelu_dx", [](const KernelContext& c) { HWY_DYNAMIC_DISPATCH(gelu_dx)(c); });
}

}  // namespace ds::cpu
#endif  // HWY_ONCE
