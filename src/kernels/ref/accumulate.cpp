#include <cstdint>

#include "kernels/ref/ref.h"

namespace ds::ref {
namespace {

// acc = x (beta 0: acc is not read) or acc + x (beta 1), in f32
template <typename T>
void accumulate(const KernelContext& c) {
  const T* x = c.in[0].as<T>();
  float* acc = c.out[0].as<float>();
  bool keep = c.attrs.real("beta") != 0;
  for (int64_t e = 0; e < c.in[0].numel(); ++e) {
    float wide = static_cast<float>(get(x, e));
    acc[e] = keep ? acc[e] + wide : wide;
  }
}

}  // namespace

void add_accumulate(KernelRegistry& registry) {
  add_kernel(registry, "accumulate", [](const KernelContext& c) {
    by_type(c.in[0].dtype, [&](auto t) { accumulate<decltype(t)>(c); });
  });
}

}  // namespace ds::ref
