#include <cstdint>

#include "kernels/ref/ref.h"

namespace ds::ref {
namespace {

// y = x factor
template <typename T>
void scale(const KernelContext& c) {
  const T* x = c.in[0].as<T>();
  T* y = c.out[0].as<T>();
  Wide<T> factor = static_cast<Wide<T>>(c.attrs.real("factor"));
  for (int64_t e = 0; e < c.in[0].numel(); ++e) y[e] = static_cast<T>(get(x, e) * factor);
}

}  // namespace

void add_scale(KernelRegistry& registry) {
  add_kernel(registry, "scale", [](const KernelContext& c) {
    by_type(c.in[0].dtype, [&](auto t) { scale<decltype(t)>(c); });
  });
}

}  // namespace ds::ref
