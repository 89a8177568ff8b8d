// Activations and their derivatives, compiled once per instruction set, for their ops and for glu.
// The formula of an activation precedes its type. Formulas avoid cancellation (1 - s is computed
// directly, not as a difference) and need no branches: where formulas differ by sign or size, both
// results are computed and one is selected.
#if defined(DS_KERNELS_CPU_ACTIVATIONS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef DS_KERNELS_CPU_ACTIVATIONS_INL_H_
#undef DS_KERNELS_CPU_ACTIVATIONS_INL_H_
#else
#define DS_KERNELS_CPU_ACTIVATIONS_INL_H_
#endif

#include <cstdint>
#include <string_view>

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ds::cpu::HWY_NAMESPACE {

// 0.5 x (1 + tanh(u)) = x logistic(2u), where u = sqrt(2/pi) (x + 0.044715 x^3).
struct GeluTanh {
  static constexpr double kTwoScale = 2 * 0.7978845608028654;  // 2 sqrt(2 / pi)
  static constexpr double kCubic = 0.044715;
  // Beyond this |x|, logistic(2u) is 1 or below 2^-110, which makes no difference in f32.
  static constexpr float kFlat = 9.5f;

  // Clamps x to where logistic(2u) changes. NaN stays NaN, because on x86 Min and Max return their
  // second operand if one is NaN.
  static HWY_INLINE Vec flatten(Vec x) {
    const Lanes d;
    return hn::Min(hn::Set(d, kFlat), hn::Max(hn::Set(d, -kFlat), x));
  }

  // Returns logistic(2u) for a clamped x, with xx = x^2. It does not cancel for negative x, but it
  // multiplies the relative rounding error of u by up to 2 |u|.
  static HWY_INLINE Vec gate(Vec x, Vec xx) {
    const Lanes d;
    const Vec one = hn::Set(d, 1.0f);
    Vec scale = hn::MulAdd(xx, hn::Set(d, static_cast<float>(-kTwoScale * kLog2E * kCubic)),
                           hn::Set(d, static_cast<float>(-kTwoScale * kLog2E)));
    return hn::Div(one, hn::Add(exp2_bounded(hn::Mul(x, scale)), one));
  }

  static HWY_INLINE Vec value(Vec x) {
    Vec flat = flatten(x);
    return hn::Mul(hn::Max(hn::Set(Lanes(), -kFlat), x), gate(flat, hn::Mul(flat, flat)));
  }

  // s + x s (1 - s) 2u', where s = logistic(2u) and u' = sqrt(2/pi) (1 + 3 0.044715 x^2).
  static HWY_INLINE Vec slope(Vec x) {
    const Lanes d;
    Vec flat = flatten(x), xx = hn::Mul(flat, flat), s = gate(flat, xx);
    Vec inner = hn::MulAdd(xx, hn::Set(d, static_cast<float>(3 * kCubic * kTwoScale)),
                           hn::Set(d, static_cast<float>(kTwoScale)));
    Vec bend = hn::Mul(hn::Mul(flat, s), hn::Sub(hn::Set(d, 1.0f), s));
    return hn::MulAdd(bend, inner, s);
  }
};

// x P, where P = 0.5 (1 + erf(x / sqrt(2))) is the normal distribution function.
struct GeluErf {
  // Returns |x|, clamped to where exp(-x^2 / 2) is above 0 in f32. NaN stays NaN, as in
  // GeluTanh::flatten().
  static HWY_INLINE Vec size(Vec x) { return hn::Min(hn::Set(Lanes(), 14.0f), hn::Abs(x)); }

  // Returns exp(-x^2 / 2). If the target has fused multiply-add, the rounding error of the square,
  // which would otherwise be multiplied by up to x^2, is corrected.
  static HWY_INLINE Vec bell(Vec x) {
    const Lanes d;
    Vec half = hn::Set(d, -0.5f), t = size(x), square = hn::Mul(t, t),
        rest = hn::MulSub(t, t, square);
    Vec e = exp_negative(hn::Mul(square, half));
    return hn::MulAdd(e, hn::Mul(rest, half), e);
  }

  // Returns P from bell(x). With t = |x|, P(-t) = bell r f(q), where r = 1 / (t / sqrt(2) + 3/2),
  // and q, which is 1 minus 3 r, is in [-1, 1]. f is a polynomial of degree 10, fitted to 0.5
  // erfcx(t / sqrt(2)) / r by least squares at Chebyshev nodes. Its relative error is 3.4e-8.
  static HWY_INLINE Vec chance(Vec x, Vec bell) {
    const Lanes d;
    const Vec one = hn::Set(d, 1.0f);
    Vec r = hn::Div(one, hn::MulAdd(size(x), hn::Set(d, 0.70710678118654752f), hn::Set(d, 1.5f)));
    Vec q = hn::NegMulAdd(r, hn::Set(d, 3.0f), one);
    constexpr float kTerms[] = {-8.278636960312724e-05f, 0.0003657502238638699f,
                                0.0009102498879656196f,  -0.00036866453592665493f,
                                -0.004735525231808424f,  -0.004067317117005587f,
                                0.023884674534201622f,   0.03781144320964813f,
                                -0.25392502546310425f,   0.48237812519073486f};
    Vec f = hn::Set(d, -6.774917710572481e-05f);
    for (float term : kTerms) f = hn::MulAdd(f, q, hn::Set(d, term));
    Vec below = hn::Mul(hn::Mul(bell, r), f);
    return hn::IfThenElse(hn::Lt(x, hn::Zero(d)), below, hn::Sub(one, below));
  }

  static HWY_INLINE Vec value(Vec x) { return hn::Mul(x, chance(x, bell(x))); }

  // P + x exp(-x^2 / 2) / sqrt(2 pi)
  static HWY_INLINE Vec slope(Vec x) {
    Vec e = bell(x);
    return hn::MulAdd(hn::Mul(x, hn::Set(Lanes(), 0.3989422804014327f)), e, chance(x, e));
  }
};

// min(GeluErf, 10).
struct Gelu10 {
  static HWY_INLINE Vec value(Vec x) { return hn::Min(hn::Set(Lanes(), 10.0f), GeluErf::value(x)); }
  static HWY_INLINE Vec slope(Vec x) {
    auto above = hn::Gt(GeluErf::value(x), hn::Set(Lanes(), 10.0f));
    return hn::IfThenZeroElse(above, GeluErf::slope(x));
  }
};

// x s, where s = 1 / (1 + exp(-x)).
struct Silu {
  // The numbers s and 1 - s, both computed without cancellation.
  struct Parts {
    Vec s, rest;
  };
  static HWY_INLINE Parts parts(Vec x) {
    const Lanes d;
    const Vec one = hn::Set(d, 1.0f);
    Vec e = exp_negative(hn::Neg(hn::Abs(x))), r = hn::Div(one, hn::Add(one, e)),
        small = hn::Mul(e, r);
    auto negative = hn::Lt(x, hn::Zero(d));
    return {hn::IfThenElse(negative, small, r), hn::IfThenElse(negative, r, small)};
  }

  static HWY_INLINE Vec value(Vec x) { return hn::Mul(x, parts(x).s); }

  // s (1 + x (1 - s))
  static HWY_INLINE Vec slope(Vec x) {
    Parts p = parts(x);
    return hn::MulAdd(hn::Mul(x, p.rest), p.s, p.s);
  }
};

// max(x, 0)
struct Relu {
  static HWY_INLINE Vec value(Vec x) { return hn::IfThenElseZero(hn::Gt(x, hn::Zero(Lanes())), x); }
  static HWY_INLINE Vec slope(Vec x) {
    const Lanes d;
    return hn::IfThenElseZero(hn::Gt(x, hn::Zero(d)), hn::Set(d, 1.0f));
  }
};

// tanh(x), computed by tanh_of() of simd-inl.h.
struct Tanh {
  static HWY_INLINE Vec value(Vec x) { return tanh_of(x); }
  // 1 - tanh(x)^2, computed as 4 e / (1 + e)^2 with e = exp(-2 |x|) so that nothing cancels.
  static HWY_INLINE Vec slope(Vec x) {
    const Lanes d;
    Vec e = exp_negative(hn::Mul(hn::Abs(x), hn::Set(d, -2.0f))),
        sum = hn::Add(hn::Set(d, 1.0f), e);
    return hn::Div(hn::Mul(hn::Set(d, 4.0f), e), hn::Mul(sum, sum));
  }
};

// max(x, 0)^2
struct Relu2 {
  static HWY_INLINE Vec value(Vec x) {
    Vec positive = Relu::value(x);
    // x * positive would be NaN for x = -inf.
    return hn::Mul(positive, positive);
  }
  // 2 max(x, 0)
  static HWY_INLINE Vec slope(Vec x) {
    Vec positive = Relu::value(x);
    return hn::Add(positive, positive);
  }
};

// P(z) of GeluErf, where z = (x - m) / s.
struct Laplace {
  static constexpr double kMean = 0.707107, kDeviation = 0.282095;

  static HWY_INLINE Vec place(Vec x) {
    const Lanes d;
    return hn::Div(hn::Sub(x, hn::Set(d, static_cast<float>(kMean))),
                   hn::Set(d, static_cast<float>(kDeviation)));
  }
  static HWY_INLINE Vec value(Vec x) {
    Vec z = place(x);
    return GeluErf::chance(z, GeluErf::bell(z));
  }
  // exp(-z^2 / 2) / (s sqrt(2 pi))
  static HWY_INLINE Vec slope(Vec x) {
    constexpr double kDensity = 0.3989422804014327;
    return hn::Mul(hn::Set(Lanes(), static_cast<float>(kDensity / kDeviation)),
                   GeluErf::bell(place(x)));
  }
};

// 1 / (1 + exp(-x))
struct Sigmoid {
  static HWY_INLINE Vec value(Vec x) { return Silu::parts(x).s; }
  // s (1 - s): both factors are computed without cancellation.
  static HWY_INLINE Vec slope(Vec x) {
    Silu::Parts p = Silu::parts(x);
    return hn::Mul(p.s, p.rest);
  }
};

// x s, where s = 1 / (1 + exp(-1.702 x)).
struct QuickGelu {
  static HWY_INLINE Vec steep(Vec x) { return hn::Mul(x, hn::Set(Lanes(), 1.702f)); }
  static HWY_INLINE Vec value(Vec x) { return hn::Mul(x, Silu::parts(steep(x)).s); }
  // s (1 + 1.702 x (1 - s))
  static HWY_INLINE Vec slope(Vec x) {
    Vec t = steep(x);
    Silu::Parts p = Silu::parts(t);
    return hn::MulAdd(hn::Mul(t, p.rest), p.s, p.s);
  }
};

// log(1 + exp(x)) = max(x, 0) + log(1 + e), e = exp(-|x|). With z = e / (2 + e) <= 1/3 the
// logarithm is 2 atanh(z) = 2 z (1 + z^2 / 3 + z^4 / 5 + ...). The omitted terms, those after z^14
// / 15, are below 2^-29 of the sum.
struct Softplus {
  static HWY_INLINE Vec value(Vec x) {
    const Lanes d;
    Vec e = exp_negative(hn::Neg(hn::Abs(x))), z = hn::Div(e, hn::Add(hn::Set(d, 2.0f), e)),
        zz = hn::Mul(z, z);
    Vec sum = hn::Set(d, 1.0f / 15);
    for (int term = 13; term > 0; term -= 2)
      sum = hn::MulAdd(sum, zz, hn::Set(d, 1.0f / static_cast<float>(term)));
    return hn::Add(hn::Max(hn::Zero(d), x), hn::Mul(hn::Add(z, z), sum));
  }
  static HWY_INLINE Vec slope(Vec x) { return Sigmoid::value(x); }
};

// y = Act(x)
template <typename T, typename Act>
void activate(const KernelContext& c) {
  const T* x = c.in[0].as<T>();
  T* y = c.out[0].as<T>();
  map_all(
      c, y, [](Vec v) HWY_ATTR { return Act::value(v); }, x);
}

// dx = dy Act'(x)
template <typename T, typename Act>
void activate_dx(const KernelContext& c) {
  const T *dy = c.in[0].as<T>(), *x = c.in[1].as<T>();
  T* dx = c.out[0].as<T>();
  map_all(
      c, dx, [](Vec g, Vec v) HWY_ATTR { return hn::Mul(g, Act::slope(v)); }, dy, x);
}

}  // namespace ds::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
