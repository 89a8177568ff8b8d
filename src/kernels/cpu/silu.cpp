#include "kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/silu.cpp"
#include <hwy/foreach_target.h>

#include "kernels/cpu/activations-inl.h"
#include "kernels/cpu/cpu.h"

HWY_BEFORE_NAMESPACE();
namespace ds::cpu::HWY_NAMESPACE {

void silu(const KernelContext& c) {
  by_type(c.in[0].dtype, [&](auto t) { activate<decltype(t), Silu>(c); });
}

void silu_dx(const KernelContext& c) {
  by_type(c.in[0].dtype, [&](auto t) { activate_dx<decltype(t), Silu>(c); });
}

}  // namespace ds::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ds::cpu {

HWY_EXPORT(silu);
HWY_EXPORT(silu_dx);

void add_silu(KernelRegistry& registry) {
  add_kernel(registry, "silu", [](const KernelContext& c) { HWY_DYNAMIC_DISPATCH(silu)(c); });
  add_kernel(registry, "silu_dx", [](const KernelContext& c) { HWY_DYNAMIC_DISPATCH(silu_dx)(c); });
}

}  // namespace ds::cpu
#endif  // HWY_ONCE
