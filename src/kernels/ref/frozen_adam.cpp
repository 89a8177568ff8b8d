#include <cmath>
#include <cstdint>

#include "core/base/group_scalars.h"
#include "kernels/ref/ref.h"
#include "kernels/skipped.h"

namespace ds::ref {
namespace {

// Adam whose momentum is given and whose variance has stopped: Tang et al., "1-bit Adam" (2021).
// The order of operations is that of `adamw` without correction.
template <typename T>
void frozen_adam(const KernelContext& c) {
  if (c.scalars.skip != 0) return skip_update(c);
  const float *m = c.in[0].as<float>(), *v = c.in[1].as<float>();
  float* master = c.out[0].as<float>();
  T* param = c.out[1].as<T>();
  const GroupScalars& group = c.scalars.group;
  float rate = static_cast<float>(group.lr), eps = static_cast<float>(group.eps);
  float decay = static_cast<float>(1 - group.lr * group.weight_decay);
  for (int64_t e = 0; e < c.in[0].numel(); ++e) {
    float p = master[e] * decay;
    p = p - rate * m[e] / (std::sqrt(v[e]) + eps);
    master[e] = p;
    param[e] = static_cast<T>(p);
  }
}

}  // namespace

void add_frozen_adam(KernelRegistry& registry) {
  add_kernel(registry, "frozen_adam", [](const KernelContext& c) {
    by_type(c.out[1].dtype, [&](auto t) { frozen_adam<decltype(t)>(c); });
  });
}

}  // namespace ds::ref
