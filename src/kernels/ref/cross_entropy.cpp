#include <algorithm>
#include <cmath>

#include "kernels/ref/ref.h"

namespace ds::ref {
namespace {

// lse[r] = log sum exp(logits[r]); loss = mean of lse - logit[target] over rows with target >= 0
template <typename T>
void cross_entropy(const KernelContext& c) {
  const T* logits = c.in[0].as<T>();
  const int32_t* targets = c.in[1].as<int32_t>();
  Wide<T>* lse = c.out[1].as<Wide<T>>();
  int64_t rows = c.in[0].dims[0], words = c.in[0].dims[1], counted = 0;
  double total = 0;
  for (int64_t r = 0; r < rows; ++r) {
    const T* row = logits + r * words;
    Wide<T> top = get(row, 0), sum = 0;
    for (int64_t v = 1; v < words; ++v) top = std::max(top, get(row, v));
    for (int64_t v = 0; v < words; ++v) sum += std::exp(get(row, v) - top);
    lse[r] = top + std::log(sum);
    if (targets[r] < 0) continue;
    total += static_cast<double>(lse[r] - get(row, targets[r]));
    ++counted;
  }
  c.out[0].as<Wide<T>>()[0] = static_cast<Wide<T>>(counted == 0 ? 0.0 : total / static_cast<double>(counted));
}

// dlogits = dloss / counted (softmax - onehot(target)); rows without a target are 0
template <typename T>
void cross_entropy_dx(const KernelContext& c) {
  const T* logits = c.in[1].as<T>();
  const int32_t* targets = c.in[2].as<int32_t>();
  const Wide<T>* lse = c.in[3].as<Wide<T>>();
  T* dx = c.out[0].as<T>();
  int64_t rows = c.in[1].dims[0], words = c.in[1].dims[1];
  int64_t counted = std::count_if(targets, targets + rows, [](int32_t target) { return target >= 0; });
  Wide<T> scale = counted == 0 ? 0 : c.in[0].as<Wide<T>>()[0] / static_cast<Wide<T>>(counted);
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t v = 0; v < words; ++v) {
      Wide<T> p = std::exp(get(logits, r * words + v) - lse[r]);
      Wide<T> hit = v == targets[r] ? 1 : 0;
      dx[r * words + v] = static_cast<T>(targets[r] < 0 ? 0 : scale * (p - hit));
    }
  }
}

}  // namespace

void add_cross_entropy(KernelRegistry& registry) {
  add_kernel(registry, "cross_entropy", [](const KernelContext& c) {
    by_type(c.in[0].dtype, [&](auto t) { cross_entropy<decltype(t)>(c); });
  });
  add_kernel(registry, "cross_entropy_dx", [](const KernelContext& c) {
    by_type(c.in[1].dtype, [&](auto t) { cross_entropy_dx<decltype(t)>(c); });
  });
}

}  // namespace ds::ref
