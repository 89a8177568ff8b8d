// The gradient of a bias: the sum of dy over rows.
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

// db = the column sums of dy
template <typename T>
void linear_db(const KernelContext& c) {
  const T* dy = c.in[0].as<T>();
  T* none = nullptr;
  auto value = [](int64_t, Vec g) HWY_ATTR { return g; };
  sum_rows(c.team, c.in[0].dims[0], c.in[0].dims[1], c.out[0].as<T>(), none, value, value, dy);
}

void add_linear_db(KernelRegistry& registry) {
  add_by_type(registry, "linear_db", []<typename T>() { return linear_db<T>; });
}

}  // namespace ds::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
