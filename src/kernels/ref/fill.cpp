#include "kernels/ref/ref.h"

namespace ds::ref {
namespace {

// The scalar `value`.
template <typename T>
void fill(const KernelContext& c) {
  c.out[0].as<T>()[0] = static_cast<T>(static_cast<Wide<T>>(c.attrs.real("value")));
}

}  // namespace

void add_fill(KernelRegistry& registry) {
  add_kernel(registry, "fill",
             [](const KernelContext& c) { by_type(c.out[0].dtype, [&](auto t) { fill<decltype(t)>(c); }); });
}

}  // namespace ds::ref
