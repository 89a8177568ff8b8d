#include "kernels/ref/ref.h"

namespace ds::ref {
namespace {

// The scalar `value`, or that times the loss scale of the step.
template <typename T>
void fill(const KernelContext& c) {
  double factor = c.attrs.integer_or("loss_scale", 0) != 0 ? c.scalars.loss_scale : 1.0;
  c.out[0].as<T>()[0] = static_cast<T>(static_cast<Wide<T>>(c.attrs.real("value") * factor));
}

}  // namespace

void add_fill(KernelRegistry& registry) {
  add_kernel(registry, "fill", [](const KernelContext& c) {
    by_type(c.out[0].dtype, [&](auto t) { fill<decltype(t)>(c); });
  });
}

}  // namespace ds::ref
