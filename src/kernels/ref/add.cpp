#include <cstdint>

#include "kernels/ref/ref.h"

namespace ds::ref {
namespace {

// y = a + b
template <typename T>
void add(const KernelContext& c) {
  const T *a = c.in[0].as<T>(), *b = c.in[1].as<T>();
  T* y = c.out[0].as<T>();
  for (int64_t e = 0; e < c.in[0].numel(); ++e) y[e] = static_cast<T>(get(a, e) + get(b, e));
}

}  // namespace

void add_add(KernelRegistry& registry) {
  add_kernel(registry, "add", [](const KernelContext& c) {
    by_type(c.in[0].dtype, [&](auto t) { add<decltype(t)>(c); });
  });
}

}  // namespace ds::ref
