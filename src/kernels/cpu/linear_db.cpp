#include <cstdint>

#include "kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/linear_db.cpp"
#include <hwy/foreach_target.h>

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/simd-inl.h"
#include "kernels/cpu/sum_rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ds::cpu::HWY_NAMESPACE {

// db = column sums of dy
template <typename T>
void linear_db_of(const KernelContext& c) {
  const T* dy = c.in[0].as<T>();
  T* none = nullptr;
  auto value = [](int64_t, Vec g) HWY_ATTR { return g; };
  sum_rows(c.team, c.in[0].dims[0], c.in[0].dims[1], c.out[0].as<T>(), none, value, value, dy);
}

void linear_db(const KernelContext& c) {
  by_type(c.in[0].dtype, [&](auto t) { linear_db_of<decltype(t)>(c); });
}

}  // namespace ds::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ds::cpu {

HWY_EXPORT(linear_db);

void add_linear_db(KernelRegistry& registry) {
  add_kernel(registry, "linear_db", [](const KernelContext& c) {
    HWY_DYNAMIC_DISPATCH(linear_db)(c);
  });
}

}  // namespace ds::cpu
#endif  // HWY_ONCE
