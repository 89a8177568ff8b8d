// Counts the rows with a target. The count is the weight of a leaf when the loss is a mean over
// tokens.
#include <algorithm>
#include <cstdint>

#include "kernels/ref/ref.h"

namespace ds::ref {
namespace {

// count = the number of rows with target >= 0
void count_targets(const KernelContext& c) {
  const int32_t* targets = c.in[0].as<int32_t>();
  const int64_t count =
      std::count_if(targets, targets + c.in[0].numel(), [](int32_t target) { return target >= 0; });
  *c.out[0].as<float>() = static_cast<float>(count);
}

}  // namespace

void add_count_targets(KernelRegistry& registry) {
  add_kernel(registry, "count_targets", count_targets);
}

}  // namespace ds::ref
