// The cross entropy of rows of logits and its gradient. `stats` holds the softmax of each row for
// the backward pass (kernels/formulas/row_softmax.h explains its two numbers).
#include <cstdint>

#include "kernels/ref/ref.h"
#include "kernels/ref/row_losses.h"

namespace ds::ref {
namespace {

// stats[r] = the softmax p of row r; loss = the mean of -log p[target] over rows with target >= 0.
// Attributes modify the loss (kernels/formulas/row_loss.h).
template <typename T>
void cross_entropy(const KernelContext& c) {
  const T* logits = c.in[0].as<T>();
  int64_t words = c.in[0].dims[1];
  put_losses<Wide<T>>(c, c.in[1].as<int32_t>(), words,
                      [=](int64_t r, int64_t v) { return get(logits, r * words + v); });
}

// dlogits = dloss / counted * p, and dloss / counted * (p - 1) at the target, where `counted` is
// the number of rows with a target. Attributes modify both. Rows without a target are 0.
template <typename T>
void cross_entropy_dx(const KernelContext& c) {
  const T* logits = c.in[1].as<T>();
  T* dx = c.out[0].as<T>();
  int64_t rows = c.in[1].dims[0], words = c.in[1].dims[1];
  const LogitGradients<Wide<T>> gradients(c, 2, words);
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t v = 0; v < words; ++v) {
      const Wide<T> g = gradients.of(r, v, get(logits, r * words + v));
      dx[r * words + v] = static_cast<T>(gradients.counts(r) ? g : 0);
    }
  }
}

}  // namespace

void add_cross_entropy(KernelRegistry& registry) {
  add_by_type(registry, "cross_entropy", []<typename T>() { return cross_entropy<T>; });
  add_by_type<in_type<1>>(registry, "cross_entropy_dx",
                          []<typename T>() { return cross_entropy_dx<T>; });
}

}  // namespace ds::ref
