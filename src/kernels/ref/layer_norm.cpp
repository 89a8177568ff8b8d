// Layer normalization (Ba, Kiros and Hinton, arXiv:1607.06450), with or without weight and bias.
#include <cmath>
#include <cstdint>
#include <span>

#include "kernels/ref/ref.h"

namespace ds::ref {
namespace {

// y = (x - mean) rstd w + b. For each row, rstd = 1 / sqrt(var + eps), where var is the mean of (x
// - mean)^2.
template <typename T>
void layer_norm(const KernelContext& c) {
  bool affine = c.in.size() == 3;
  const T *x = c.in[0].as<T>(), *w = affine ? c.in[1].as<T>() : nullptr,
          *b = affine ? c.in[2].as<T>() : nullptr;
  T* y = c.out[0].as<T>();
  Wide<T>*means = c.out[1].as<Wide<T>>(), *rstds = c.out[2].as<Wide<T>>();
  int64_t rows = c.in[0].dims[0], width = c.in[0].dims[1];
  Wide<T> eps = static_cast<Wide<T>>(c.attrs.real("eps")), count = static_cast<Wide<T>>(width);
  for (int64_t r = 0; r < rows; ++r) {
    Wide<T> sum = 0, squares = 0;
    for (int64_t k = 0; k < width; ++k) sum += get(x, r * width + k);
    // The variance needs a second pass, because the mean of squares minus the square of the mean
    // would cancel.
    Wide<T> mean = sum / count;
    for (int64_t k = 0; k < width; ++k) {
      Wide<T> centered = get(x, r * width + k) - mean;
      squares += centered * centered;
    }
    Wide<T> rstd = 1 / std::sqrt(squares / count + eps);
    for (int64_t k = 0; k < width; ++k) {
      Wide<T> normal = (get(x, r * width + k) - mean) * rstd;
      y[r * width + k] = static_cast<T>(affine ? normal * get(w, k) + get(b, k) : normal);
    }
    means[r] = mean;
    rstds[r] = rstd;
  }
}

// With g = dy w and h = (x - mean) rstd: dx = rstd (g - mean(g) - h mean(g h)).
template <typename T>
void layer_norm_dx(const KernelContext& c) {
  const T *dy = c.in[0].as<T>(), *x = c.in[1].as<T>(),
          *w = c.in.size() == 5 ? c.in[2].as<T>() : nullptr;
  std::span<const TensorView> stats = c.in.last(2);
  const Wide<T>*means = stats[0].as<Wide<T>>(), *rstds = stats[1].as<Wide<T>>();
  T* dx = c.out[0].as<T>();
  int64_t rows = c.in[0].dims[0], width = c.in[0].dims[1];
  Wide<T> count = static_cast<Wide<T>>(width);
  for (int64_t r = 0; r < rows; ++r) {
    // Sums for the gradients with respect to mean and rstd, through which every element of a row
    // depends on all others.
    Wide<T> sum_g = 0, sum_gh = 0;
    for (int64_t k = 0; k < width; ++k) {
      Wide<T> g = get(dy, r * width + k) * (w ? get(w, k) : 1);
      Wide<T> h = (get(x, r * width + k) - means[r]) * rstds[r];
      sum_g += g;
      sum_gh += g * h;
    }
    for (int64_t k = 0; k < width; ++k) {
      Wide<T> g = get(dy, r * width + k) * (w ? get(w, k) : 1);
      Wide<T> h = (get(x, r * width + k) - means[r]) * rstds[r];
      dx[r * width + k] = static_cast<T>(rstds[r] * (g - sum_g / count - h * (sum_gh / count)));
    }
  }
}

// dw = the sum over rows of dy (x - mean) rstd, db = the sum over rows of dy.
template <typename T>
void layer_norm_dw(const KernelContext& c) {
  const T *dy = c.in[0].as<T>(), *x = c.in[1].as<T>();
  const Wide<T>*means = c.in[2].as<Wide<T>>(), *rstds = c.in[3].as<Wide<T>>();
  T *dw = c.out[0].as<T>(), *db = c.out[1].as<T>();
  int64_t rows = c.in[0].dims[0], width = c.in[0].dims[1];
  for (int64_t k = 0; k < width; ++k) {
    Wide<T> sum_w = 0, sum_b = 0;
    for (int64_t r = 0; r < rows; ++r) {
      Wide<T> g = get(dy, r * width + k);
      sum_w += g * ((get(x, r * width + k) - means[r]) * rstds[r]);
      sum_b += g;
    }
    dw[k] = static_cast<T>(sum_w);
    db[k] = static_cast<T>(sum_b);
  }
}

}  // namespace

void add_layer_norm(KernelRegistry& registry) {
  add_by_type(registry, "layer_norm", []<typename T>() { return layer_norm<T>; });
  add_by_type(registry, "layer_norm_dx", []<typename T>() { return layer_norm_dx<T>; });
  add_by_type(registry, "layer_norm_dw", []<typename T>() { return layer_norm_dw<T>; });
}

}  // namespace ds::ref
