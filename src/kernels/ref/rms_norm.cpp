// Root mean square normalization (Zhang and Sennrich, arXiv:1910.07467). It normalizes runs that
// are as long as the weight. If the weight is shorter than a row, each head is normalized
// separately.
#include <cmath>
#include <cstdint>

#include "kernels/ref/ref.h"

namespace ds::ref {
namespace {

// Returns w[k], or 1 + w[k] if `offset` is 1.
template <typename T>
Wide<T> weight(const T* w, int64_t k, int64_t offset) {
  return offset == 0 ? get(w, k) : 1 + get(w, k);
}

// y = x rstd (w + offset), where rstd = 1 / sqrt(mean of x^2 + eps) over each run as long as w.
template <typename T>
void rms_norm(const KernelContext& c) {
  const T *x = c.in[0].as<T>(), *w = c.in[1].as<T>();
  T* y = c.out[0].as<T>();
  Wide<T>* rstds = c.out[1].as<Wide<T>>();
  int64_t width = c.in[1].dims[0], runs = c.in[0].numel() / width,
          offset = c.attrs.integer_or("offset", 0);
  Wide<T> eps = static_cast<Wide<T>>(c.attrs.real("eps")), count = static_cast<Wide<T>>(width);
  for (int64_t r = 0; r < runs; ++r) {
    // RMS norm has no mean to subtract, so rstd needs only one pass.
    Wide<T> squares = 0;
    for (int64_t k = 0; k < width; ++k) squares += get(x, r * width + k) * get(x, r * width + k);
    Wide<T> rstd = 1 / std::sqrt(squares / count + eps);
    for (int64_t k = 0; k < width; ++k) {
      y[r * width + k] = static_cast<T>(get(x, r * width + k) * rstd * weight(w, k, offset));
    }
    rstds[r] = rstd;
  }
}

// With g = dy (w + offset) and h = x rstd: dx = rstd (g - h mean(g h)).
template <typename T>
void rms_norm_dx(const KernelContext& c) {
  const T *dy = c.in[0].as<T>(), *x = c.in[1].as<T>(), *w = c.in[2].as<T>();
  const Wide<T>* rstds = c.in[3].as<Wide<T>>();
  T* dx = c.out[0].as<T>();
  int64_t width = c.in[2].dims[0], runs = c.in[0].numel() / width,
          offset = c.attrs.integer_or("offset", 0);
  Wide<T> count = static_cast<Wide<T>>(width);
  for (int64_t r = 0; r < runs; ++r) {
    Wide<T> sum_gh = 0;
    for (int64_t k = 0; k < width; ++k) {
      sum_gh += get(dy, r * width + k) * weight(w, k, offset) * (get(x, r * width + k) * rstds[r]);
    }
    for (int64_t k = 0; k < width; ++k) {
      Wide<T> g = get(dy, r * width + k) * weight(w, k, offset),
              h = get(x, r * width + k) * rstds[r];
      dx[r * width + k] = static_cast<T>(rstds[r] * (g - h * (sum_gh / count)));
    }
  }
}

// dw = the sum over runs of dy x rstd.
template <typename T>
void rms_norm_dw(const KernelContext& c) {
  const T *dy = c.in[0].as<T>(), *x = c.in[1].as<T>();
  const Wide<T>* rstds = c.in[2].as<Wide<T>>();
  T* dw = c.out[0].as<T>();
  int64_t width = c.out[0].dims[0], runs = c.in[0].numel() / width;
  for (int64_t k = 0; k < width; ++k) {
    Wide<T> sum = 0;
    for (int64_t r = 0; r < runs; ++r)
      sum += get(dy, r * width + k) * (get(x, r * width + k) * rstds[r]);
    dw[k] = static_cast<T>(sum);
  }
}

}  // namespace

void add_rms_norm(KernelRegistry& registry) {
  add_by_type(registry, "rms_norm", []<typename T>() { return rms_norm<T>; });
  add_by_type(registry, "rms_norm_dx", []<typename T>() { return rms_norm_dx<T>; });
  add_by_type(registry, "rms_norm_dw", []<typename T>() { return rms_norm_dw<T>; });
}

}  // namespace ds::ref
