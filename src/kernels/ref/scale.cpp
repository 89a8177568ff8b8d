// Multiplies a tensor by a constant.
#include "kernels/ref/ref.h"

namespace ds::ref {
namespace {

// y = x factor
template <typename T>
void scale(const KernelContext& c) {
  Wide<T> factor = static_cast<Wide<T>>(c.attrs.real("factor"));
  map<T>(c, [&](Wide<T> x) { return x * factor; });
}

}  // namespace

void add_scale(KernelRegistry& registry) {
  add_by_type(registry, "scale", []<typename T>() { return scale<T>; });
}

}  // namespace ds::ref
