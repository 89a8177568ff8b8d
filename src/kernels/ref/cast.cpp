// Conversion between element types.
#include <cstdint>

#include "kernels/ref/ref.h"

namespace ds::ref {
namespace {

// y = x rounded to nearest, ties to even. If the target has 16 bits, x is first rounded to f32.
template <typename From, typename To>
void cast(const KernelContext& c) {
  const From* x = c.in[0].as<From>();
  To* y = c.out[0].as<To>();
  for (int64_t e = 0; e < c.in[0].numel(); ++e) {
    y[e] = static_cast<To>(static_cast<Wide<To>>(get(x, e)));
  }
}

}  // namespace

void add_cast(KernelRegistry& registry) {
  add_kernel(registry, "cast", [](const KernelContext& c) {
    by_type(c.in[0].dtype, [&](auto from) {
      by_type(c.out[0].dtype, [&](auto to) { cast<decltype(from), decltype(to)>(c); });
    });
  });
}

}  // namespace ds::ref
