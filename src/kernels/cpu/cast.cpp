// Conversion between element types. load() and store() of simd-inl.h do the work.
#include <cstdint>

#include "kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/cast.cpp"
#include <hwy/foreach_target.h>

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ds::cpu::HWY_NAMESPACE {

// y = x rounded to nearest, ties to even.
template <typename From, typename To>
void cast_to(const KernelContext& c) {
  const From* x = c.in[0].as<From>();
  To* y = c.out[0].as<To>();
  map_all(
      c, y, [](Vec v) HWY_ATTR { return v; }, x);
}

void cast(const KernelContext& c) {
  by_type(c.in[0].dtype, [&](auto from) {
    by_type(c.out[0].dtype, [&](auto to) { cast_to<decltype(from), decltype(to)>(c); });
  });
}

void add_cast(KernelRegistry& registry) { add_kernel(registry, "cast", cast); }

}  // namespace ds::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
