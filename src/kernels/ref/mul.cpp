// The product of two tensors, element by element. Its gradients are products, too.
#include "kernels/ref/ref.h"

namespace ds::ref {

// y = a b
void add_mul(KernelRegistry& registry) {
  add_by_type(registry, "mul", []<typename T>() {
    return +[](const KernelContext& c) { map<T>(c, [](auto a, auto b) { return a * b; }); };
  });
}

}  // namespace ds::ref
