// The fused head: cross_entropy of the logits x w^T. Each logit is computed where it is used and is
// not stored. With attribute `kept`, however, all logits are stored, rounded to the operands' type,
// and both passes use the rounded values.
#include <algorithm>
#include <cstdint>
#include <span>

#include "core/graph/ops/kept_logits.h"
#include "kernels/ref/ref.h"
#include "kernels/ref/row_losses.h"

namespace ds::ref {
namespace {

// Returns one logit, the dot product of a row of x and a row of w.
template <typename T>
Wide<T> dot(const T* x, const T* w, int64_t width) {
  Wide<T> sum = 0;
  for (int64_t i = 0; i < width; ++i) sum += get(x, i) * get(w, i);
  return sum;
}

// Stored logits, rounded to T. Each row has `stride` elements and ends in zeros after the last
// word.
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

// Computes the results of cross_entropy for logit[r,v] = x[r] . w[v].
template <typename T>
void linear_cross_entropy(const KernelContext& c) {
  const T *x = c.in[0].as<T>(), *w = c.in[1].as<T>();
  int64_t rows = c.in[0].dims[0], width = c.in[0].dims[1], words = c.in[1].dims[0];
  const bool keeps = keeps_logits(c.attrs);
  Kept<T> kept{};
  if (keeps) kept = {c.out[2].as<T>(), c.out[2].dims[1]}, kept.make(x, w, rows, width, words);
  put_losses<Wide<T>>(c, c.in[2].as<int32_t>(), words, [&](int64_t r, int64_t v) {
    return keeps ? kept.logit(r, v) : dot(x + r * width, w + v * width, width);
  });
}

// dx = g w and dw = g^T x, where g[r,v] is the gradient of logit[r,v] as in cross_entropy_dx. Each
// logit is recomputed when its gradient is needed. dx is summed over words and each row of dw over
// rows; both are rounded once.
template <typename T>
void gradients_of_made(const KernelContext& c) {
  const T *x = c.in[1].as<T>(), *w = c.in[2].as<T>();
  const LogitGradients<Wide<T>> gradients(c, 3, c.in[2].dims[0]);
  T *dx = c.out[0].as<T>(), *dw = c.out[1].as<T>();
  // `sums` is dx, and `row` a row of dw, before rounding.
  Wide<T>* sums = c.out[c.out.size() > 3 ? 3 : 0].as<Wide<T>>();
  int64_t rows = c.in[1].dims[0], width = c.in[1].dims[1], words = c.in[2].dims[0];
  std::span<Wide<T>> row = scratch_of<Wide<T>>(c, width);
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

// to[i] = the sum over k of factor(k) times element i of row k of `from`, rounded once.
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

// dx = g w and dw = g^T x, where the gradients g are computed from the stored logits and rounded to
// T before they are multiplied.
template <typename T>
void gradients_of_kept(const KernelContext& c) {
  const Kept<T> kept{c.in[5].as<T>(), c.in[5].dims[1]};
  const LogitGradients<Wide<T>> gradients(c, 3, c.in[2].dims[0]);
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

// Computes dx and dw from the stored logits if there are any, otherwise from recomputed ones.
template <typename T>
void linear_cross_entropy_dx(const KernelContext& c) {
  keeps_logits(c.attrs) ? gradients_of_kept<T>(c) : gradients_of_made<T>(c);
}

}  // namespace

void add_linear_cross_entropy(KernelRegistry& registry) {
  add_by_type(registry, "linear_cross_entropy",
              []<typename T>() { return linear_cross_entropy<T>; });
  add_by_type<in_type<1>>(registry, "linear_cross_entropy_dx",
                          []<typename T>() { return linear_cross_entropy_dx<T>; });
}

}  // namespace ds::ref
