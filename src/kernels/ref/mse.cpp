// The mean squared error and its gradient.
#include <cstdint>

#include "kernels/ref/ref.h"

namespace ds::ref {
namespace {

// loss = the mean of (x - target)^2, added in f64.
template <typename T>
void mse(const KernelContext& c) {
  const T *x = c.in[0].as<T>(), *target = c.in[1].as<T>();
  int64_t count = c.in[0].numel();
  double total = 0;
  for (int64_t e = 0; e < count; ++e) {
    Wide<T> difference = get(x, e) - get(target, e);
    total += static_cast<double>(difference * difference);
  }
  c.out[0].as<Wide<T>>()[0] = static_cast<Wide<T>>(total / static_cast<double>(count));
}

// dx = 2 dloss (x - target) / count
template <typename T>
void mse_dx(const KernelContext& c) {
  const T *x = c.in[1].as<T>(), *target = c.in[2].as<T>();
  T* dx = c.out[0].as<T>();
  int64_t count = c.in[1].numel();
  Wide<T> scale = 2 * c.in[0].as<Wide<T>>()[0] / static_cast<Wide<T>>(count);
  for (int64_t e = 0; e < count; ++e) dx[e] = static_cast<T>(scale * (get(x, e) - get(target, e)));
}

}  // namespace

void add_mse(KernelRegistry& registry) {
  add_by_type(registry, "mse", []<typename T>() { return mse<T>; });
  add_by_type<in_type<1>>(registry, "mse_dx", []<typename T>() { return mse_dx<T>; });
}

}  // namespace ds::ref
