// Activations, gated units (glu), the soft cap and the gradient of mse: functions of single
// elements, within the tolerances of kernels/accuracy.cpp. kernels/ref/activations.h has the
// formulas. The activation is the same for all threads, so branches on it do not diverge. For silu
// and tanh-gelu, which most models use, there is one branch for eight elements.
//
// Exponentials are arranged so that their overflow is harmless: exp(x) = inf gives x / inf = 0.
#include "kernels/cuda/activation.h"
#include "kernels/cuda/device.h"
#include "kernels/cuda/element_args.h"
#include "kernels/cuda/row-inl.h"

namespace ds::cuda {
namespace {

constexpr float kRootTwoOverPi = 0.7978845608028654f, kCubic = 0.044715f, kSteep = 1.702f;
// The square roots of 1/2 and of 1/(2 pi).
constexpr float kRootHalf = 0.7071067811865476f, kDensity = 0.3989422804014327f;
// laplace (Ma et al., "Mega: moving average equipped gated attention", arXiv:2209.10655): the
// square roots of 1/2 and of 1/(4 pi), with the six digits that Transformers has.
constexpr float kMean = 0.707107f, kDeviation = 0.282095f;

// normal_share() returns the cumulative normal distribution. steepness() returns -2 u, the exponent
// of tanh-gelu, because (1 + tanh(u)) / 2 equals 1 / (1 + exp(-2 u)).
DS_DEVICE float normal_share(float x) { return 0.5f * erfcf(-x * kRootHalf); }
DS_DEVICE float steepness(float x) { return -2 * kRootTwoOverPi * (x + kCubic * x * x * x); }
DS_DEVICE float sigmoid_of(float x) { return 1 / (1 + expf(-x)); }

DS_DEVICE float silu_slope(float x, float s) { return s * (1 + x * (1 - s)); }
// Returns the derivative of tanh-gelu; s is 1 / (1 + exp(steepness(x))). x * x is bounded because s
// (1 - s) is 0 where x * x overflows, and 0 * inf would be NaN.
DS_DEVICE float gelu_slope(float x, float s) {
  return s + x * s * (1 - s) * (2 * kRootTwoOverPi * (1 + 3 * kCubic * fminf(x * x, 1e30f)));
}

// value() returns the activation of one element, and slope() returns its derivative.
DS_DEVICE float value(Act act, float x) {
  switch (act) {
    case Act::silu:
      return x / (1 + expf(-x));
    case Act::gelu_tanh:
      return x / (1 + expf(steepness(x)));
    case Act::gelu_erf:
      return x * normal_share(x);
    case Act::gelu_10: {
      const float y = x * normal_share(x);
      return y > 10 ? 10.0f : y;
    }
    case Act::relu:
      return x > 0 ? x : 0.0f;
    case Act::tanh:
      return tanhf(x);
    case Act::relu2:
      return x > 0 ? x * x : 0.0f;
    case Act::laplace:
      return normal_share((x - kMean) / kDeviation);
    case Act::sigmoid:
      return sigmoid_of(x);
    case Act::quick_gelu:
      return x / (1 + expf(-kSteep * x));
    case Act::softplus:
      return (x > 0 ? x : 0.0f) + log1pf(expf(-fabsf(x)));
  }
  return 0;
}

DS_DEVICE float slope(Act act, float x) {
  switch (act) {
    case Act::silu:
      return silu_slope(x, sigmoid_of(x));
    case Act::gelu_tanh:
      return gelu_slope(x, sigmoid_of(-steepness(x)));
    case Act::gelu_10:
      if (x * normal_share(x) > 10) return 0;
      [[fallthrough]];
    case Act::gelu_erf:
      return normal_share(x) + x * kDensity * expf(-0.5f * x * x);
    case Act::relu:
      return x > 0 ? 1.0f : 0.0f;
    // 1 - tanh(x)^2, in a form without cancellation.
    case Act::tanh: {
      const float e = expf(-2 * fabsf(x)), sum = 1 + e;
      return 4 * e / (sum * sum);
    }
    case Act::relu2:
      return x > 0 ? 2 * x : 0.0f;
    case Act::laplace: {
      const float z = (x - kMean) / kDeviation;
      return kDensity / kDeviation * expf(-0.5f * z * z);
    }
    case Act::sigmoid: {
      const float e = expf(-fabsf(x)), sum = 1 + e;
      return e / (sum * sum);
    }
    case Act::quick_gelu: {
      const float s = 1 / (1 + expf(-kSteep * x));
      return s * (1 + kSteep * x * (1 - s));
    }
    case Act::softplus:
      return sigmoid_of(x);
  }
  return 0;
}

template <typename F>
DS_DEVICE Eight of_each(Eight x, const F& f) {
#pragma unroll
  for (int k = 0; k < 8; ++k) x.v[k] = f(x.v[k]);
  return x;
}
// Returns 1 / (1 + exp(x)), computed with the device's instructions for powers of 2 and
// reciprocals. The error is smaller than the precision of 16-bit types; results below 2^-126 become
// 0.
DS_DEVICE float quick_share(float x) { return reciprocal(1 + power_of_2(kLog2OfE * x)); }
// Applies an activation to eight elements. `narrow` is true if operands have 16 bits; the fast
// instructions are then accurate enough.
DS_DEVICE Eight values(int32_t flag, bool narrow, const Eight& x) {
  const auto act = static_cast<Act>(flag);
  if (act == Act::gelu_tanh) {
    return narrow ? of_each(x, [](float e) { return e * quick_share(steepness(e)); })
                  : of_each(x, [](float e) { return value(Act::gelu_tanh, e); });
  }
  if (act == Act::silu) {
    return narrow ? of_each(x, [](float e) { return e * quick_share(-e); })
                  : of_each(x, [](float e) { return value(Act::silu, e); });
  }
  return of_each(x, [&](float e) { return value(act, e); });
}
DS_DEVICE Eight slopes(int32_t flag, bool narrow, const Eight& x) {
  const auto act = static_cast<Act>(flag);
  if (act == Act::gelu_tanh) {
    return narrow ? of_each(x, [](float e) { return gelu_slope(e, quick_share(steepness(e))); })
                  : of_each(x, [](float e) { return slope(Act::gelu_tanh, e); });
  }
  if (act == Act::silu) {
    return narrow ? of_each(x, [](float e) { return silu_slope(e, quick_share(-e)); })
                  : of_each(x, [](float e) { return slope(Act::silu, e); });
  }
  return of_each(x, [&](float e) { return slope(act, e); });
}
DS_DEVICE bool narrow_of(const ElementArgs& a) { return a.in[0].dtype != DS_DTYPE_F32; }
DS_DEVICE Eight product(Eight x, const Eight& y) {
#pragma unroll
  for (int k = 0; k < 8; ++k) x.v[k] *= y.v[k];
  return x;
}

// The halves of a packed gate and up have rows of `width` elements that are `stride` elements
// apart. place() returns the index of element i of such a half. Eight elements are in one row if
// the width is a multiple of 8.
DS_DEVICE int64_t place(const ElementArgs& a, int64_t i) {
  return i / a.width * a.stride + i % a.width;
}
DS_DEVICE Eight load_rows(const ElementArgs& a, const Operand& o, int64_t i, int n) {
  if (a.width % 8 == 0) return load(o, place(a, i), n, a.wide);
  Eight e;
#pragma unroll
  for (int k = 0; k < 8; ++k) e.v[k] = k < n ? get(o, place(a, i + k)) : 0.0f;
  return e;
}
DS_DEVICE void store_rows(const ElementArgs& a, const Operand& o, int64_t i, int n,
                          const Eight& e) {
  if (a.width % 8 == 0) return store(o, place(a, i), n, a.wide, e);
#pragma unroll
  for (int k = 0; k < 8; ++k) {
    if (k < n) put(o, place(a, i + k), e.v[k]);
  }
}

}  // namespace

DS_LOOP_KERNEL(activate, ElementArgs) {
  each_eight(a.count, [&](int64_t i, int n) {
    store(a.out[0], i, n, a.wide, values(a.flag, narrow_of(a), load(a.in[0], i, n, a.wide)));
  });
}
// dx = dy act'(x). The operands are dy and x.
DS_LOOP_KERNEL(activate_dx, ElementArgs) {
  each_eight(a.count, [&](int64_t i, int n) {
    Eight dy, x;
    // dy and x have the same type.
    with_type(a.in[0].dtype, [&](auto given) {
      constexpr int32_t type = decltype(given)::value;
      const Bits<type> of_dy = fetch<type>(a.in[0], i, n, a.wide),
                       of_x = fetch<type>(a.in[1], i, n, a.wide);
      dy = widened(of_dy), x = widened(of_x);
    });
    store(a.out[0], i, n, a.wide, product(dy, slopes(a.flag, narrow_of(a), x)));
  });
}

// y = act(gate) up. The operands are gate and up.
DS_LOOP_KERNEL(glu, ElementArgs) {
  each_eight(a.count, [&](int64_t i, int n) {
    const Eight gate = load_rows(a, a.in[0], i, n), up = load_rows(a, a.in[1], i, n);
    store(a.out[0], i, n, a.wide, product(values(a.flag, narrow_of(a), gate), up));
  });
}
// dgate = dy up act'(gate), and dup = dy act(gate). The operands are dy, gate and up; the results
// are dgate and dup.
DS_LOOP_KERNEL(glu_dx, ElementArgs) {
  each_eight(a.count, [&](int64_t i, int n) {
    const Eight dy = load(a.in[0], i, n, a.wide), gate = load_rows(a, a.in[1], i, n),
                up = load_rows(a, a.in[2], i, n);
    store_rows(a, a.out[0], i, n, product(product(dy, up), slopes(a.flag, narrow_of(a), gate)));
    store_rows(a, a.out[1], i, n, product(dy, values(a.flag, narrow_of(a), gate)));
  });
}

// y = cap tanh(x / cap). `a` is cap.
DS_LOOP_KERNEL(softcap, ElementArgs) {
  each_eight(a.count, [&](int64_t i, int n) {
    Eight x = load(a.in[0], i, n, a.wide);
#pragma unroll
    for (int k = 0; k < 8; ++k) x.v[k] = a.a * tanhf(x.v[k] / a.a);
    store(a.out[0], i, n, a.wide, x);
  });
}
// dx = dy (1 - (y / cap)^2), so x is not needed. The operands are dy and y, and `a` is cap.
DS_LOOP_KERNEL(softcap_dx, ElementArgs) {
  each_eight(a.count, [&](int64_t i, int n) {
    Eight dy = load(a.in[0], i, n, a.wide);
    const Eight y = load(a.in[1], i, n, a.wide);
#pragma unroll
    for (int k = 0; k < 8; ++k) {
      const float t = y.v[k] / a.a;
      dy.v[k] *= 1 - t * t;
    }
    store(a.out[0], i, n, a.wide, dy);
  });
}

// The operands are dloss, x and target. dx = 2 dloss (x - target) / count.
DS_LOOP_KERNEL(mse_dx, ElementArgs) {
  const float scale = 2 * get(a.in[0], 0) / static_cast<float>(a.count);
  each_eight(a.count, [&](int64_t i, int n) {
    Eight x = load(a.in[1], i, n, a.wide);
    const Eight target = load(a.in[2], i, n, a.wide);
#pragma unroll
    for (int k = 0; k < 8; ++k) x.v[k] = scale * (x.v[k] - target.v[k]);
    store(a.out[0], i, n, a.wide, x);
  });
}

}  // namespace ds::cuda
