#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>

#include "kernels/ref/ref.h"
#include "kernels/row_softmax.h"

namespace ds::ref {
namespace {

template <typename T>
Wide<T> dot(const T* x, const T* w, int64_t width) {
  Wide<T> sum = 0;
  for (int64_t i = 0; i < width; ++i) sum += get(x, i) * get(w, i);
  return sum;
}

// cross_entropy of logit[r,v] = x[r] . w[v]
template <typename T>
void linear_cross_entropy(const KernelContext& c) {
  const T *x = c.in[0].as<T>(), *w = c.in[1].as<T>();
  const int32_t* targets = c.in[2].as<int32_t>();
  auto* stats = c.out[1].as<RowSoftmax<Wide<T>>>();
  int64_t rows = c.in[0].dims[0], width = c.in[0].dims[1], words = c.in[1].dims[0], counted = 0;
  double total = 0;
  for (int64_t r = 0; r < rows; ++r) {
    auto logit = [&](int64_t v) { return dot(x + r * width, w + v * width, width); };
    stats[r] = RowSoftmax<Wide<T>>::of(words, logit);
    if (targets[r] < 0) continue;
    total += static_cast<double>(stats[r].loss(logit(targets[r])));
    ++counted;
  }
  c.out[0].as<Wide<T>>()[0] = static_cast<Wide<T>>(counted == 0 ? 0.0 : total / static_cast<double>(counted));
}

// With the gradients g[r,v] of the logits, as in cross_entropy_dx: dx = g w, dw = g^T x
template <typename T>
void linear_cross_entropy_dx(const KernelContext& c) {
  const T *x = c.in[1].as<T>(), *w = c.in[2].as<T>();
  const int32_t* targets = c.in[3].as<int32_t>();
  const auto* stats = c.in[4].as<RowSoftmax<Wide<T>>>();
  T *dx = c.out[0].as<T>(), *dw = c.out[1].as<T>();
  Wide<T>* sums = c.out[c.out.size() > 3 ? 3 : 0].as<Wide<T>>();  // dx, until it is rounded
  int64_t rows = c.in[1].dims[0], width = c.in[1].dims[1], words = c.in[2].dims[0];
  int64_t counted = std::count_if(targets, targets + rows, [](int32_t target) { return target >= 0; });
  Wide<T> scale = counted == 0 ? 0 : c.in[0].as<Wide<T>>()[0] / static_cast<Wide<T>>(counted);
  std::span<Wide<T>> row = scratch_of<Wide<T>>(c, width);  // of dw, until it is rounded
  std::fill(sums, sums + rows * width, Wide<T>(0));
  for (int64_t v = 0; v < words; ++v) {
    std::fill(row.begin(), row.end(), Wide<T>(0));
    for (int64_t r = 0; r < rows; ++r) {
      if (targets[r] < 0) continue;
      Wide<T> logit = dot(x + r * width, w + v * width, width);
      Wide<T> p = std::exp(logit - stats[r].top) / stats[r].sum();
      Wide<T> g = scale * (v == targets[r] ? -stats[r].miss(logit) : p);
      for (int64_t i = 0; i < width; ++i) {
        row[static_cast<size_t>(i)] += g * get(x, r * width + i);
        sums[r * width + i] += g * get(w, v * width + i);
      }
    }
    for (int64_t i = 0; i < width; ++i) dw[v * width + i] = static_cast<T>(row[static_cast<size_t>(i)]);
  }
  for (int64_t e = 0; e < rows * width; ++e) dx[e] = static_cast<T>(sums[e]);
}

}  // namespace

void add_linear_cross_entropy(KernelRegistry& registry) {
  add_kernel(registry, "linear_cross_entropy", [](const KernelContext& c) {
    by_type(c.in[0].dtype, [&](auto t) { linear_cross_entropy<decltype(t)>(c); });
  });
  add_kernel(registry, "linear_cross_entropy_dx", [](const KernelContext& c) {
    by_type(c.in[1].dtype, [&](auto t) { linear_cross_entropy_dx<decltype(t)>(c); });
  });
}

}  // namespace ds::ref
