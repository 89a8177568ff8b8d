#include <cstdint>

#include "kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/cast.cpp"
#include <hwy/foreach_target.h>

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ds::cpu::HWY_NAMESPACE {

// y = x rounded to nearest even
template <typename From, typename To>
void cast_to(const KernelContext& c) {
  const From* x = c.in[0].as<From>();
  To* y = c.out[0].as<To>();
  for_blocks(c.team, c.in[0].numel(), kBlock, [=](int64_t begin, int64_t end) HWY_ATTR {
    map(
        begin, end, y, [](Vec v) HWY_ATTR { return v; }, x);
  });
}

void cast(const KernelContext& c) {
  by_type(c.in[0].dtype, [&](auto from) {
    by_type(c.out[0].dtype, [&](auto to) { cast_to<decltype(from), decltype(to)>(c); });
  });
}

}  // namespace ds::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ds::cpu {

HWY_EXPORT(cast);

void add_cast(KernelRegistry& registry) {
  add_kernel(registry, "cast", [](const KernelContext& c) { HWY_DYNAMIC_DISPATCH(cast)(c); });
}

}  // namespace ds::cpu
#endif  // HWY_ONCE
