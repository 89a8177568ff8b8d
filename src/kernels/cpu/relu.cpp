#include <cstdint>

#include "kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/relu.cpp"
#include <hwy/foreach_target.h>

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ds::cpu::HWY_NAMESPACE {

// y = x where x > 0, else 0
template <typename T>
void relu_of(const KernelContext& c) {
  const T* x = c.in[0].as<T>();
  T* y = c.out[0].as<T>();
  for_blocks(c.team, c.in[0].numel(), kBlock, [=](int64_t begin, int64_t end) HWY_ATTR {
    map(
        begin, end, y,
        [](Vec v) HWY_ATTR { return hn::IfThenElseZero(hn::Gt(v, hn::Zero(Lanes())), v); }, x);
  });
}

void relu(const KernelContext& c) {
  by_type(c.in[0].dtype, [&](auto t) { relu_of<decltype(t)>(c); });
}

// dx = dy where x > 0, else 0
template <typename T>
void relu_dx_of(const KernelContext& c) {
  const T *dy = c.in[0].as<T>(), *x = c.in[1].as<T>();
  T* dx = c.out[0].as<T>();
  for_blocks(c.team, c.in[0].numel(), kBlock, [=](int64_t begin, int64_t end) HWY_ATTR {
    map(
        begin, end, dx,
        [](Vec g, Vec v) HWY_ATTR { return hn::IfThenElseZero(hn::Gt(v, hn::Zero(Lanes())), g); },
        dy, x);
  });
}

void relu_dx(const KernelContext& c) {
  by_type(c.in[0].dtype, [&](auto t) { relu_dx_of<decltype(t)>(c); });
}

}  // namespace ds::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ds::cpu {

HWY_EXPORT(relu);
HWY_EXPORT(relu_dx);

void add_relu(KernelRegistry& registry) {
  add_kernel(registry, "relu", [](const KernelContext& c) { HWY_DYNAMIC_DISPATCH(relu)(c); });
  add_kernel(registry, "relu_dx", [](const KernelContext& c) { HWY_DYNAMIC_DISPATCH(relu_dx)(c); });
}

}  // namespace ds::cpu
#endif  // HWY_ONCE
