#include <cstring>

#include "kernels/ref/ref.h"

namespace ds::ref {
namespace {

// Sets all bytes of every output to 0, for any element type.
void zero(const KernelContext& c) {
  for (const TensorView& out : c.out) {
    std::memset(out.data, 0, static_cast<size_t>(out.numel() * size_of(out.dtype)));
  }
}

}  // namespace

void add_zero(KernelRegistry& registry) { add_kernel(registry, "zero", zero); }

}  // namespace ds::ref
