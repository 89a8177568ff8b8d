#include "core/program/top.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "core/base/element_run.h"
#include "kernels/ref/ref.h"

namespace ds::ref {
namespace {

// Deep gradient compression without its momentum correction (Lin et al., arXiv:1712.01887): adds x
// to the error and packs, for each tensor, the share `ratio` of its elements that have the largest
// magnitudes, as values and places (element indices). The other elements stay in the error. Of
// elements with equal magnitudes, the first is chosen, so that all implementations agree.
void pack_top(const KernelContext& c) {
  const float* x = c.in[0].as<float>();
  float* error = c.out[0].as<float>();
  auto* block = c.out[1].as<std::byte>();
  if (c.scalars.skip != 0) {
    std::memset(block, 0, static_cast<size_t>(c.out[1].bytes()));
    return;
  }
  const double ratio = c.attrs.real("ratio");
  auto* values = reinterpret_cast<float*>(block);
  // The first half of a block is values, the second half places.
  auto* places = reinterpret_cast<int32_t*>(block + c.out[1].bytes() / 2);
  std::vector<int32_t> order;
  for (const ElementRun& t : c.runs) {
    order.clear();
    for (int64_t e = t.begin; e < t.end; ++e) {
      error[e] = x[e] + error[e];
      order.push_back(static_cast<int32_t>(e));
    }
    const auto count = order.begin() + top_count(t.end - t.begin, ratio);
    // This is a total order, so the chosen set does not depend on the algorithm.
    auto larger = [&](int32_t a, int32_t b) {
      const float left = std::abs(error[a]), right = std::abs(error[b]);
      return left > right || (left == right && a < b);
    };
    if (count != order.end()) std::nth_element(order.begin(), count, order.end(), larger);
    // Places are sent in ascending order.
    std::sort(order.begin(), count);
    for (auto e = order.begin(); e != count; ++e) {
      *values++ = error[*e];
      *places++ = *e;
      error[*e] = 0;
    }
  }
}

// Adds up the elements that the ranks sent, in rank order.
void sum_top(const KernelContext& c) {
  const auto* blocks = c.in[0].as<std::byte>();
  float* sum = c.out[0].as<float>();
  const int64_t ranks = c.attrs.integer("ranks"), block = c.in[0].bytes() / ranks;
  std::fill_n(sum, c.out[0].numel(), 0.0f);
  for (int64_t r = 0; r < ranks; ++r) {
    const auto* values = reinterpret_cast<const float*>(blocks + r * block);
    const auto* places = reinterpret_cast<const int32_t*>(blocks + r * block + block / 2);
    for (int64_t k = 0; k < block / kTopBytes; ++k) sum[places[k]] += values[k];
  }
}

}  // namespace

void add_top(KernelRegistry& registry) {
  add_kernel(registry, "pack_top", pack_top);
  add_kernel(registry, "sum_top", sum_top);
}

}  // namespace ds::ref
