#include "kernels/ref/ref.h"

namespace ds::ref {
namespace {

// acc = x (beta 0: acc is not read) or acc + x (beta 1); f32
void accumulate(const KernelContext& c) {
  const float* x = c.in[0].as<float>();
  float* acc = c.out[0].as<float>();
  bool keep = c.attrs.real("beta") != 0;
  for (int64_t e = 0; e < c.in[0].numel(); ++e) acc[e] = keep ? acc[e] + x[e] : x[e];
}

}  // namespace

void add_accumulate(KernelRegistry& registry) { add_kernel(registry, "accumulate", accumulate); }

}  // namespace ds::ref
