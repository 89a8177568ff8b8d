// A linear layer and its gradients. A weight is stored [O,I], or [I,O] with attribute `transposed`.
#include <cstdint>

#include "kernels/ref/ref.h"

namespace ds::ref {
namespace {

// The layout of a weight or of its gradient: element (o, i) is at o * output + i * input.
struct Weight {
  Weight(const TensorView& w, const Attrs& attrs) {
    bool transposed = attrs.integer_or("transposed", 0) != 0;
    outputs = w.dims[transposed ? 1 : 0];
    inputs = w.dims[transposed ? 0 : 1];
    output = transposed ? 1 : inputs;
    input = transposed ? outputs : 1;
  }
  int64_t at(int64_t o, int64_t i) const { return o * output + i * input; }
  int64_t outputs, inputs, output, input;
};

// y = x w^T (+ b). The bias is added to the sum before it is rounded.
template <typename T>
void linear(const KernelContext& c) {
  const T *x = c.in[0].as<T>(), *w = c.in[1].as<T>();
  const T* b = c.in.size() == 3 ? c.in[2].as<T>() : nullptr;
  T* y = c.out[0].as<T>();
  const Weight weight(c.in[1], c.attrs);
  for (int64_t r = 0; r < c.in[0].dims[0]; ++r) {
    for (int64_t o = 0; o < weight.outputs; ++o) {
      Wide<T> sum = 0;
      for (int64_t i = 0; i < weight.inputs; ++i)
        sum += get(x, r * weight.inputs + i) * get(w, weight.at(o, i));
      y[r * weight.outputs + o] = static_cast<T>(b ? sum + get(b, o) : sum);
    }
  }
}

// dx = dy w
template <typename T>
void linear_dx(const KernelContext& c) {
  const T *dy = c.in[0].as<T>(), *w = c.in[1].as<T>();
  T* dx = c.out[0].as<T>();
  const Weight weight(c.in[1], c.attrs);
  for (int64_t r = 0; r < c.in[0].dims[0]; ++r) {
    for (int64_t i = 0; i < weight.inputs; ++i) {
      Wide<T> sum = 0;
      for (int64_t o = 0; o < weight.outputs; ++o)
        sum += get(dy, r * weight.outputs + o) * get(w, weight.at(o, i));
      dx[r * weight.inputs + i] = static_cast<T>(sum);
    }
  }
}

// dw = dy^T x: each element is a sum over rows.
template <typename T>
void linear_dw(const KernelContext& c) {
  const T *dy = c.in[0].as<T>(), *x = c.in[1].as<T>();
  T* dw = c.out[0].as<T>();
  const Weight weight(c.out[0], c.attrs);
  for (int64_t o = 0; o < weight.outputs; ++o) {
    for (int64_t i = 0; i < weight.inputs; ++i) {
      Wide<T> sum = 0;
      for (int64_t r = 0; r < c.in[0].dims[0]; ++r) {
        sum += get(dy, r * weight.outputs + o) * get(x, r * weight.inputs + i);
      }
      dw[weight.at(o, i)] = static_cast<T>(sum);
    }
  }
}

// db = the column sums of dy.
template <typename T>
void linear_db(const KernelContext& c) {
  const T* dy = c.in[0].as<T>();
  T* db = c.out[0].as<T>();
  int64_t rows = c.in[0].dims[0], outputs = c.in[0].dims[1];
  for (int64_t o = 0; o < outputs; ++o) {
    Wide<T> sum = 0;
    for (int64_t r = 0; r < rows; ++r) sum += get(dy, r * outputs + o);
    db[o] = static_cast<T>(sum);
  }
}

}  // namespace

void add_linear(KernelRegistry& registry) {
  add_by_type(registry, "linear", []<typename T>() { return linear<T>; });
  add_by_type(registry, "linear_dx", []<typename T>() { return linear_dx<T>; });
  add_by_type(registry, "linear_dw", []<typename T>() { return linear_dw<T>; });
  add_by_type(registry, "linear_db", []<typename T>() { return linear_db<T>; });
}

}  // namespace ds::ref
