// The magnitudes of adapted weights (DoRA): norms of rows, their use, and its gradients.
#include <cmath>
#include <cstdint>

#include "kernels/ref/ref.h"

namespace ds::ref {
namespace {

// norms[o] = |w[o] + factor b[o] a|
template <typename T>
void dora_norm(const KernelContext& c) {
  const T *w = c.in[0].as<T>(), *a = c.in[1].as<T>(), *b = c.in[2].as<T>();
  T* norms = c.out[0].as<T>();
  const bool transposed = c.attrs.integer_or("transposed", 0) != 0;
  const auto factor = static_cast<Wide<T>>(c.attrs.real("factor"));
  const int64_t rank = c.in[1].dims[0], inputs = c.in[1].dims[1], outputs = c.in[2].dims[0];
  for (int64_t o = 0; o < outputs; ++o) {
    Wide<T> squares = 0;
    for (int64_t i = 0; i < inputs; ++i) {
      Wide<T> sum = 0;
      for (int64_t k = 0; k < rank; ++k) sum += get(b, o * rank + k) * get(a, k * inputs + i);
      const Wide<T> x = get(w, transposed ? i * outputs + o : o * inputs + i) + factor * sum;
      squares += x * x;
    }
    norms[o] = static_cast<T>(std::sqrt(squares));
  }
}

// y = (c - 1) (base - bias) + c product, where c = m / norms
template <typename T>
void dora(const KernelContext& c) {
  const T *base = c.in[0].as<T>(), *product = c.in[1].as<T>(), *m = c.in[2].as<T>(),
          *norms = c.in[3].as<T>(), *bias = c.in.size() == 5 ? c.in[4].as<T>() : nullptr;
  T* y = c.out[0].as<T>();
  const int64_t width = c.in[0].dims[1];
  for (int64_t e = 0; e < c.in[0].numel(); ++e) {
    const int64_t o = e % width;
    const Wide<T> factor = get(m, o) / get(norms, o),
                  plain = get(base, e) - (bias ? get(bias, o) : 0);
    y[e] = static_cast<T>((factor - 1) * plain + factor * get(product, e));
  }
}

// dbase = (c - 1) dy, dproduct = c dy
template <typename T>
void dora_dx(const KernelContext& c) {
  const T *dy = c.in[0].as<T>(), *m = c.in[1].as<T>(), *norms = c.in[2].as<T>();
  T *dbase = c.out[0].as<T>(), *dproduct = c.out[1].as<T>();
  const int64_t width = c.in[0].dims[1];
  for (int64_t e = 0; e < c.in[0].numel(); ++e) {
    const Wide<T> factor = get(m, e % width) / get(norms, e % width);
    dbase[e] = static_cast<T>((factor - 1) * get(dy, e));
    dproduct[e] = static_cast<T>(factor * get(dy, e));
  }
}

// dm = the column sums of dy (base - bias + product), divided by norms
template <typename T>
void dora_dm(const KernelContext& c) {
  const T *dy = c.in[0].as<T>(), *base = c.in[1].as<T>(), *product = c.in[2].as<T>(),
          *norms = c.in[3].as<T>(), *bias = c.in.size() == 5 ? c.in[4].as<T>() : nullptr;
  T* dm = c.out[0].as<T>();
  const int64_t rows = c.in[0].dims[0], width = c.in[0].dims[1];
  for (int64_t o = 0; o < width; ++o) {
    Wide<T> sum = 0;
    for (int64_t e = o; e < rows * width; e += width)
      sum += get(dy, e) * (get(base, e) - (bias ? get(bias, o) : 0) + get(product, e));
    dm[o] = static_cast<T>(sum / get(norms, o));
  }
}

}  // namespace

void add_dora(KernelRegistry& registry) {
  add_by_type(registry, "dora_norm", []<typename T>() { return dora_norm<T>; });
  add_by_type(registry, "dora", []<typename T>() { return dora<T>; });
  add_by_type(registry, "dora_dx", []<typename T>() { return dora_dx<T>; });
  add_by_type(registry, "dora_dm", []<typename T>() { return dora_dm<T>; });
}

}  // namespace ds::ref
