#include <cstdint>

#include "kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/add.cpp"
#include <hwy/foreach_target.h>

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ds::cpu::HWY_NAMESPACE {

// y = a + b
template <typename T>
void add_of(const KernelContext& c) {
  const T *a = c.in[0].as<T>(), *b = c.in[1].as<T>();
  T* y = c.out[0].as<T>();
  for_blocks(c.team, c.in[0].numel(), kBlock, [=](int64_t begin, int64_t end) HWY_ATTR {
    map(
        begin, end, y, [](Vec u, Vec v) HWY_ATTR { return hn::Add(u, v); }, a, b);
  });
}

void add(const KernelContext& c) {
  by_type(c.in[0].dtype, [&](auto t) { add_of<decltype(t)>(c); });
}

}  // namespace ds::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ds::cpu {

HWY_EXPORT(add);

void add_add(KernelRegistry& registry) {
  add_kernel(registry, "add", [](const KernelContext& c) { HWY_DYNAMIC_DISPATCH(add)(c); });
}

}  // namespace ds::cpu
#endif  // HWY_ONCE
