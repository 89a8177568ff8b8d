// max(x, 0) and its gradient. A NaN becomes 0, because NaN > 0 is false.
#include <cstdint>

#include "kernels/ref/ref.h"

namespace ds::ref {
namespace {

// y = max(x, 0)
template <typename T>
void relu(const KernelContext& c) {
  const T* x = c.in[0].as<T>();
  T* y = c.out[0].as<T>();
  for (int64_t e = 0; e < c.in[0].numel(); ++e)
    y[e] = get(x, e) > 0 ? x[e] : static_cast<T>(Wide<T>(0));
}

// dx = dy where x > 0, otherwise 0.
template <typename T>
void relu_dx(const KernelContext& c) {
  const T *dy = c.in[0].as<T>(), *x = c.in[1].as<T>();
  T* dx = c.out[0].as<T>();
  for (int64_t e = 0; e < c.in[0].numel(); ++e)
    dx[e] = get(x, e) > 0 ? dy[e] : static_cast<T>(Wide<T>(0));
}

}  // namespace

void add_relu(KernelRegistry& registry) {
  add_by_type(registry, "relu", []<typename T>() { return relu<T>; });
  add_by_type(registry, "relu_dx", []<typename T>() { return relu_dx<T>; });
}

}  // namespace ds::ref
