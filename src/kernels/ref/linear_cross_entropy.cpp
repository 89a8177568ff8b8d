#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>

#include "core/graph/ops/kept_logits.h"
#include "kernels/ref/ref.h"
#include "kernels/row_loss.h"
#include "kernels/row_softmax.h"

namespace ds::ref {
namespace {

template <typename T>
Wide<T> dot(const T* x, const T* w, int64_t width) {
  Wide<T> sum = 0;
  for (int64_t i = 0; i < width; ++i) sum += get(x, i) * get(w, i);
  return sum;
}

// Rows of logits rounded to T, with zeros behind their words.
template <typename T>
struct Kept {
  T* at;
  int64_t stride;
  Wide<T> logit(int64_t row, int64_t word) const { return get(at, row * stride + word); }
  void make(const T* x, const T* w, int64_t rows, int64_t width, int64_t words) const {
    std::fill(at, at + rows * stride, T(0));
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t v = 0; v < words; ++v)
        at[r * stride + v] = static_cast<T>(dot(x + r * width, w + v * width, width));
    }
  }
};

// cross_entropy of logit[r,v] = x[r] . w[v]
template <typename T>
void linear_cross_entropy(const KernelContext& c) {
  const T *x = c.in[0].as<T>(), *w = c.in[1].as<T>();
  const int32_t* targets = c.in[2].as<int32_t>();
  auto* stats = c.out[1].as<RowSoftmax<Wide<T>>>();
  int64_t rows = c.in[0].dims[0], width = c.in[0].dims[1], words = c.in[1].dims[0], counted = 0;
  const auto loss = RowLoss<Wide<T>>::of(c.attrs, words);
  const Reduction reduction = reduction_of(c.attrs);
  auto* out = c.out[0].as<Wide<T>>();
  const bool keeps = keeps_logits(c.attrs);
  Kept<T> kept{};
  if (keeps) kept = {c.out[2].as<T>(), c.out[2].dims[1]}, kept.make(x, w, rows, width, words);
  double total = 0;
  for (int64_t r = 0; r < rows; ++r) {
    auto logit = [&](int64_t v) {
      return keeps ? kept.logit(r, v) : dot(x + r * width, w + v * width, width);
    };
    stats[r] = RowSoftmax<Wide<T>>::of(words, logit);
    if (reduction == Reduction::none) out[r] = 0;
    if (targets[r] < 0) continue;
    Wide<T> spread = 0;
    for (int64_t v = 0; v < words && loss.smoothing != 0; ++v) spread += stats[r].top - logit(v);
    Wide<T> of_row = loss.value(stats[r], logit(targets[r]), spread);
    if (reduction == Reduction::none) out[r] = of_row;
    total += static_cast<double>(of_row);
    ++counted;
  }
  if (reduction == Reduction::sum) out[0] = static_cast<Wide<T>>(total);
  if (reduction != Reduction::mean) return;
  out[0] = static_cast<Wide<T>>(counted == 0 ? 0.0 : total / static_cast<double>(counted));
}

// With the gradients g[r,v] of the logits, as in cross_entropy_dx: dx = g w, dw = g^T x
template <typename T>
struct Gradients {
  const int32_t* targets;
  const RowSoftmax<Wide<T>>* stats;
  RowLoss<Wide<T>> loss;
  LossGradient<Wide<T>> dloss;

  explicit Gradients(const KernelContext& c)
      : targets(c.in[3].as<int32_t>()),
        stats(c.in[4].as<RowSoftmax<Wide<T>>>()),
        loss(RowLoss<Wide<T>>::of(c.attrs, c.in[2].dims[0])),
        dloss(LossGradient<Wide<T>>::of(c.attrs, c.in[0].as<Wide<T>>(), targets, c.in[1].dims[0])) {
  }
  bool counts(int64_t r) const { return targets[r] >= 0; }
  Wide<T> of(int64_t r, int64_t v, Wide<T> logit) const {
    Wide<T> p = std::exp(logit - stats[r].top) / stats[r].sum();
    Wide<T> slope = v == targets[r] ? loss.of_target(stats[r], logit) : loss.of_other(stats[r], p);
    return dloss.of_row(r) * slope;
  }
};

template <typename T>
void linear_cross_entropy_dx(const KernelContext& c) {
  const T *x = c.in[1].as<T>(), *w = c.in[2].as<T>();
  const Gradients<T> gradients(c);
  T *dx = c.out[0].as<T>(), *dw = c.out[1].as<T>();
  Wide<T>* sums = c.out[c.out.size() > 3 ? 3 : 0].as<Wide<T>>();  // dx, until it is rounded
  int64_t rows = c.in[1].dims[0], width = c.in[1].dims[1], words = c.in[2].dims[0];
  std::span<Wide<T>> row = scratch_of<Wide<T>>(c, width);  // of dw, until it is rounded
  std::fill(sums, sums + rows * width, Wide<T>(0));
  for (int64_t v = 0; v < words; ++v) {
    std::fill(row.begin(), row.end(), Wide<T>(0));
    for (int64_t r = 0; r < rows; ++r) {
      if (!gradients.counts(r)) continue;
      Wide<T> g = gradients.of(r, v, dot(x + r * width, w + v * width, width));
      for (int64_t i = 0; i < width; ++i) {
        row[static_cast<size_t>(i)] += g * get(x, r * width + i);
        sums[r * width + i] += g * get(w, v * width + i);
      }
    }
    for (int64_t i = 0; i < width; ++i)
      dw[v * width + i] = static_cast<T>(row[static_cast<size_t>(i)]);
  }
  for (int64_t e = 0; e < rows * width; ++e) dx[e] = static_cast<T>(sums[e]);
}

// to[i] = the sum over k of factor(k) times element i of row k of `from`.
template <typename T, typename F>
void sum_rows(const KernelContext& c, int64_t count, int64_t width, const T* from, const F& factor,
              T* to) {
  std::span<Wide<T>> row = scratch_of<Wide<T>>(c, width);
  std::fill(row.begin(), row.end(), Wide<T>(0));
  for (int64_t k = 0; k < count; ++k) {
    for (int64_t i = 0; i < width; ++i)
      row[static_cast<size_t>(i)] += factor(k) * get(from, k * width + i);
  }
  for (int64_t i = 0; i < width; ++i) to[i] = static_cast<T>(row[static_cast<size_t>(i)]);
}

// Of kept logits; their gradients are rounded to T.
template <typename T>
void gradients_of_kept(const KernelContext& c) {
  const Kept<T> kept{c.in[5].as<T>(), c.in[5].dims[1]};
  const Gradients<T> gradients(c);
  T* g = c.out[2].as<T>();
  int64_t rows = c.in[1].dims[0], width = c.in[1].dims[1], words = c.in[2].dims[0],
          stride = kept.stride;
  std::fill(g, g + rows * stride, T(0));
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t v = 0; v < words && gradients.counts(r); ++v)
      g[r * stride + v] = static_cast<T>(gradients.of(r, v, kept.logit(r, v)));
  }
  for (int64_t r = 0; r < rows; ++r)
    sum_rows(
        c, words, width, c.in[2].as<T>(), [=](int64_t v) { return get(g, r * stride + v); },
        c.out[0].as<T>() + r * width);
  for (int64_t v = 0; v < words; ++v)
    sum_rows(
        c, rows, width, c.in[1].as<T>(), [=](int64_t r) { return get(g, r * stride + v); },
        c.out[1].as<T>() + v * width);
}

}  // namespace

void add_linear_cross_entropy(KernelRegistry& registry) {
  add_kernel(registry, "linear_cross_entropy", [](const KernelContext& c) {
    by_type(c.in[0].dtype, [&](auto t) { linear_cross_entropy<decltype(t)>(c); });
  });
  add_kernel(registry, "linear_cross_entropy_dx", [](const KernelContext& c) {
    by_type(c.in[1].dtype, [&](auto t) {
      keeps_logits(c.attrs) ? gradients_of_kept<decltype(t)>(c)
                            : linear_cross_entropy_dx<decltype(t)>(c);
    });
  });
}

}  // namespace ds::ref
