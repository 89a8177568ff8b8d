#include <cstdint>

#include "kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/mul.cpp"
#include <hwy/foreach_target.h>

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ds::cpu::HWY_NAMESPACE {

// y = a b
template <typename T>
void mul_of(const KernelContext& c) {
  const T *a = c.in[0].as<T>(), *b = c.in[1].as<T>();
  T* y = c.out[0].as<T>();
  for_blocks(c.team, c.in[0].numel(), kBlock, [=](int64_t begin, int64_t end) HWY_ATTR {
    map(
        begin, end, y, [](Vec u, Vec v) HWY_ATTR { return hn::Mul(u, v); }, a, b);
  });
}

void mul(const KernelContext& c) {
  by_type(c.in[0].dtype, [&](auto t) { mul_of<decltype(t)>(c); });
}

}  // namespace ds::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ds::cpu {

HWY_EXPORT(mul);

void add_mul(KernelRegistry& registry) {
  add_kernel(registry, "mul", [](const KernelContext& c) { HWY_DYNAMIC_DISPATCH(mul)(c); });
}

}  // namespace ds::cpu
#endif  // HWY_ONCE
