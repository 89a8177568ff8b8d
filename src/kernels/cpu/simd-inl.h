// Vector helpers, compiled once per instruction set. Include after foreach_target.h, inside no namespace.
#if defined(DS_KERNELS_CPU_SIMD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef DS_KERNELS_CPU_SIMD_INL_H_
#undef DS_KERNELS_CPU_SIMD_INL_H_
#else
#define DS_KERNELS_CPU_SIMD_INL_H_
#endif

#include <hwy/highway.h>

#include "core/base/dtype.h"

HWY_BEFORE_NAMESPACE();
namespace ds::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using Lanes = hn::ScalableTag<float>;  // f32 vectors of the target's full width
using Vec = hn::Vec<Lanes>;
using Ints = hn::Rebind<int32_t, Lanes>;
using Words = hn::Rebind<uint32_t, Lanes>;
using Halves = hn::Rebind<uint16_t, Lanes>;  // as many 16-bit lanes as Lanes has

HWY_INLINE int64_t lanes() { return static_cast<int64_t>(hn::Lanes(Lanes())); }

// One vector of elements from p, as f32. No alignment needed.
HWY_INLINE Vec load(const float* p) { return hn::LoadU(Lanes(), p); }
HWY_INLINE Vec load(const bf16* p) {
  auto bits = hn::LoadU(Halves(), reinterpret_cast<const uint16_t*>(p));
  return hn::BitCast(Lanes(), hn::ShiftLeft<16>(hn::PromoteTo(Words(), bits)));
}

// Stores one vector, rounded as bf16(float) rounds: to nearest even, NaN stays NaN.
HWY_INLINE void store(Vec v, float* p) { hn::StoreU(v, Lanes(), p); }
HWY_INLINE void store(Vec v, bf16* p) {
  const Words words;
  auto bits = hn::BitCast(words, v);
  auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(words, 1u));
  auto rounded = hn::Add(bits, hn::Add(odd, hn::Set(words, 0x7fffu)));
  auto nan = hn::Or(bits, hn::Set(words, 0x400000u));
  auto is_nan = hn::RebindMask(words, hn::IsNaN(v));
  auto top = hn::ShiftRight<16>(hn::IfThenElse(is_nan, nan, rounded));
  hn::StoreU(hn::TruncateTo(Halves(), top), Halves(), reinterpret_cast<uint16_t*>(p));
}

// The first `count` < lanes() elements; the other lanes are `fill`.
template <typename T>
HWY_INLINE Vec load_part(const T* p, int64_t count, float fill = 0.0f) {
  T part[HWY_MAX_BYTES / sizeof(float)];
  for (int64_t i = 0; i < lanes(); ++i) part[i] = i < count ? p[i] : T(fill);
  return load(part);
}
template <typename T>
HWY_INLINE void store_part(Vec v, T* p, int64_t count) {
  T part[HWY_MAX_BYTES / sizeof(float)];
  store(v, part);
  for (int64_t i = 0; i < count; ++i) p[i] = part[i];
}

// 2^n for integral n in [-126, 127], as f32 lanes that hold an integer.
HWY_INLINE Vec power_of_two(hn::Vec<Ints> n) {
  return hn::BitCast(Lanes(), hn::ShiftLeft<23>(hn::Add(n, hn::Set(Ints(), 127))));
}

struct ExpParts {
  Vec mantissa;  // exp(r), r = x - n ln 2
  hn::Vec<Ints> n;
};
// x / ln 2 rounded to n, clamped to [low, high]; a NaN of x ends up in the mantissa.
HWY_INLINE ExpParts split_exp(Vec x, float low, float high) {
  const Lanes d;
  Vec scaled = hn::Mul(hn::Min(hn::Max(x, hn::Set(d, low)), hn::Set(d, high)), hn::Set(d, 1.44269504f));
  Vec n = hn::Round(scaled);
  Vec r = hn::NegMulAdd(n, hn::Set(d, 0.693145752f), x);
  r = hn::NegMulAdd(n, hn::Set(d, 1.42860677e-6f), r);
  // Interpolation of (exp(r) - 1 - r) / r^2 at Chebyshev nodes: relative error of exp 1.1e-8.
  Vec p = hn::Set(d, 0.0013926183587713494f);
  p = hn::MulAdd(p, r, hn::Set(d, 0.008363179052722578f));
  p = hn::MulAdd(p, r, hn::Set(d, 0.041666554617204574f));
  p = hn::MulAdd(p, r, hn::Set(d, 0.16666576989698775f));
  p = hn::MulAdd(p, r, hn::Set(d, 0.5f));
  p = hn::MulAdd(hn::Mul(p, r), r, r);
  return {hn::Add(p, hn::Set(d, 1.0f)), hn::NearestInt(scaled)};
}

// exp(x), within 2 units in the last place where the result is normal; below that 0, above f32 infinity.
HWY_INLINE Vec exp(Vec x) {
  const Lanes d;
  ExpParts e = split_exp(x, -88.0f, 89.0f);
  auto half = hn::ShiftRight<1>(e.n);
  Vec y = hn::Mul(hn::Mul(e.mantissa, power_of_two(half)), power_of_two(hn::Sub(e.n, half)));
  y = hn::IfThenZeroElse(hn::Lt(x, hn::Set(d, -87.3365f)), y);
  return hn::IfThenElse(hn::Gt(x, hn::Set(d, 88.7228f)), hn::Inf(d), y);
}

// exp(x) for x <= 0 (or a little above), the same accuracy.
HWY_INLINE Vec exp_negative(Vec x) {
  const Lanes d;
  ExpParts e = split_exp(x, -87.0f, 1.0f);
  return hn::IfThenZeroElse(hn::Lt(x, hn::Set(d, -87.0f)), hn::Mul(e.mantissa, power_of_two(e.n)));
}

// y[e] = f(x[e]...) for e in [begin, end).
template <typename Y, typename F, typename... X>
HWY_INLINE void map(int64_t begin, int64_t end, Y* y, const F& f, const X*... x) {
  int64_t e = begin, step = lanes();
  for (; e + step <= end; e += step) store(f(load(x + e)...), y + e);
  if (e < end) store_part(f(load_part(x + e, end - e)...), y + e, end - e);
}

HWY_INLINE float sum(Vec v) { return hn::GetLane(hn::SumOfLanes(Lanes(), v)); }
HWY_INLINE float maximum(Vec v) { return hn::GetLane(hn::MaxOfLanes(Lanes(), v)); }

}  // namespace ds::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
