// Fills the scalar gradient with which the backward pass begins.
#include "kernels/ref/ref.h"

namespace ds::ref {
namespace {

// y = `value`, multiplied by the step's loss scale if attribute `loss_scale` is set.
template <typename T>
void fill(const KernelContext& c) {
  double factor = c.attrs.integer_or("loss_scale", 0) != 0 ? c.scalars.loss_scale : 1.0;
  c.out[0].as<T>()[0] = static_cast<T>(static_cast<Wide<T>>(c.attrs.real("value") * factor));
}

}  // namespace

void add_fill(KernelRegistry& registry) {
  add_by_type<out_type<0>>(registry, "fill", []<typename T>() { return fill<T>; });
}

}  // namespace ds::ref
