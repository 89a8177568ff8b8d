// Adds the gradient of a micro-step to the sum of the step.
#include <cstdint>

#include "kernels/ref/ref.h"

namespace ds::ref {
namespace {

// acc = acc + x if beta is 1, or acc = x, without reading acc, if beta is 0. The result is computed
// in f32 and rounded to the type of acc.
template <typename T, typename A>
void accumulate(const KernelContext& c) {
  const T* x = c.in[0].as<T>();
  A* acc = c.out[0].as<A>();
  bool keep = c.attrs.real("beta") != 0;
  for (int64_t e = 0; e < c.in[0].numel(); ++e) {
    float wide = static_cast<float>(get(x, e));
    acc[e] = static_cast<A>(keep ? static_cast<float>(get(acc, e)) + wide : wide);
  }
}

}  // namespace

void add_accumulate(KernelRegistry& registry) {
  add_kernel(registry, "accumulate", [](const KernelContext& c) {
    by_type(c.in[0].dtype, [&](auto t) {
      by_type(c.out[0].dtype, [&](auto a) { accumulate<decltype(t), decltype(a)>(c); });
    });
  });
}

}  // namespace ds::ref
