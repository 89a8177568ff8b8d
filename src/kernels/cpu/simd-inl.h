// Vector helpers, compiled once per instruction set. Include after foreach_target.h, inside no
// namespace.
//
// A kernel computes on vectors of f32, whatever the type of its operands: load() widens, store()
// rounds once, to nearest even. Functions for exponentials have bounded domains, which callers
// guarantee (scores minus their maximum, for example).
#if defined(DS_KERNELS_CPU_SIMD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef DS_KERNELS_CPU_SIMD_INL_H_
#undef DS_KERNELS_CPU_SIMD_INL_H_
#else
#define DS_KERNELS_CPU_SIMD_INL_H_
#endif

#include <hwy/highway.h>

#include <cstdint>

#include "core/base/dtype.h"
#include "kernels/cpu/cpu.h"

HWY_BEFORE_NAMESPACE();
namespace ds::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// f32 vectors of the target's full width.
using Lanes = hn::ScalableTag<float>;
using Vec = hn::Vec<Lanes>;
using Ints = hn::Rebind<int32_t, Lanes>;
using Words = hn::Rebind<uint32_t, Lanes>;
// Vectors of 16-bit lanes, one for each lane of Lanes.
using Halves = hn::Rebind<uint16_t, Lanes>;

HWY_INLINE int64_t lanes() { return static_cast<int64_t>(hn::Lanes(Lanes())); }

// Loads one vector of elements from p, as f32. p needs no alignment.
HWY_INLINE Vec load(const float* p) { return hn::LoadU(Lanes(), p); }
HWY_INLINE Vec load(const bf16* p) {
  auto bits = hn::LoadU(Halves(), reinterpret_cast<const uint16_t*>(p));
  return hn::BitCast(Lanes(), hn::ShiftLeft<16>(hn::PromoteTo(Words(), bits)));
}

// Stores one vector, rounded as bf16(float) rounds: to nearest even, and NaN stays NaN.
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

// Load and store f16. Highway's own conversions are used from AVX2 on, where they are one
// instruction. Highway's emulation of that instruction does not support infinity, on which loss
// scaling depends, so other targets convert here, as widen_half() and narrow_half() do.
#if HWY_TARGET <= HWY_AVX2
HWY_INLINE Vec load(const f16* p) {
  const hn::Rebind<hwy::float16_t, Lanes> halves;
  return hn::PromoteTo(Lanes(), hn::LoadU(halves, reinterpret_cast<const hwy::float16_t*>(p)));
}
HWY_INLINE void store(Vec v, f16* p) {
  const hn::Rebind<hwy::float16_t, Lanes> halves;
  hn::StoreU(hn::DemoteTo(halves, v), halves, reinterpret_cast<hwy::float16_t*>(p));
}
#else
HWY_INLINE Vec load(const f16* p) {
  const Ints ints;
  const Lanes d;
  auto bits = hn::PromoteTo(ints, hn::LoadU(Halves(), reinterpret_cast<const uint16_t*>(p)));
  auto magnitude = hn::And(bits, hn::Set(ints, 0x7fff));
  auto sign = hn::ShiftLeft<16>(hn::Xor(bits, magnitude)), wide = hn::ShiftLeft<13>(magnitude);
  auto tiny =
      hn::Sub(hn::BitCast(d, hn::Add(wide, hn::Set(ints, 113 << 23))), hn::Set(d, 0x1p-14f));
  auto normal = hn::Add(wide, hn::Set(ints, 112 << 23)),
       special = hn::Add(wide, hn::Set(ints, 224 << 23));
  auto finite =
      hn::IfThenElse(hn::Lt(magnitude, hn::Set(ints, 0x400)), hn::BitCast(ints, tiny), normal);
  auto value = hn::IfThenElse(hn::Lt(magnitude, hn::Set(ints, 0x7c00)), finite, special);
  return hn::BitCast(d, hn::Or(sign, value));
}
HWY_INLINE void store(Vec v, f16* p) {
  const Ints ints;
  const Lanes d;
  auto bits = hn::BitCast(ints, v);
  auto magnitude = hn::And(bits, hn::Set(ints, 0x7fffffff));
  auto sign = hn::And(hn::ShiftRight<16>(bits), hn::Set(ints, 0x8000));
  auto is_tiny = hn::Lt(magnitude, hn::Set(ints, 0x38800000));
  auto small = hn::BitCast(d, hn::IfThenElseZero(is_tiny, magnitude));
  auto tiny =
      hn::Sub(hn::BitCast(ints, hn::Add(small, hn::Set(d, 0.5f))), hn::Set(ints, 0x3f000000));
  auto odd = hn::And(hn::ShiftRight<13>(magnitude), hn::Set(ints, 1));
  auto normal =
      hn::ShiftRight<13>(hn::Add(magnitude, hn::Add(odd, hn::Set(ints, 0xfff - (112 << 23)))));
  auto nan =
      hn::Or(hn::And(hn::ShiftRight<13>(magnitude), hn::Set(ints, 0x1ff)), hn::Set(ints, 0x7e00));
  auto is_nan = hn::Gt(magnitude, hn::Set(ints, 0x7f800000));
  auto special = hn::IfThenElse(is_nan, nan, hn::Set(ints, 0x7c00));
  auto finite = hn::IfThenElse(is_tiny, tiny, normal);
  auto value =
      hn::Or(sign, hn::IfThenElse(hn::Lt(magnitude, hn::Set(ints, 0x47800000)), finite, special));
  auto halves = hn::TruncateTo(Halves(), hn::BitCast(Words(), value));
  hn::StoreU(halves, Halves(), reinterpret_cast<uint16_t*>(p));
}
#endif

// Loads the first `count` < lanes() elements; the other lanes are `fill`.
template <typename T>
HWY_INLINE Vec load_part(const T* p, int64_t count, float fill = 0.0f) {
  T part[HWY_MAX_BYTES / sizeof(float)];
  for (int64_t i = 0; i < lanes(); ++i) part[i] = i < count ? p[i] : T(fill);
  return load(part);
}
// Stores the first `count` < lanes() elements.
template <typename T>
HWY_INLINE void store_part(Vec v, T* p, int64_t count) {
  T part[HWY_MAX_BYTES / sizeof(float)];
  store(v, part);
  for (int64_t i = 0; i < count; ++i) p[i] = part[i];
}

// Returns 2^n for integral n in [-126, 127].
HWY_INLINE Vec power_of_two(hn::Vec<Ints> n) {
  return hn::BitCast(Lanes(), hn::ShiftLeft<23>(hn::Add(n, hn::Set(Ints(), 127))));
}

// Returns 2^f for |f| <= 1/2. (2^f - 1) / f is a polynomial that interpolates at Chebyshev nodes;
// the relative error of 2^f is 5.1e-9 before rounding.
HWY_INLINE Vec exp2_fraction(Vec f) {
  const Lanes d;
  Vec p = hn::Set(d, 0.0001545318282995974f);
  p = hn::MulAdd(p, f, hn::Set(d, 0.0013390886332106697f));
  p = hn::MulAdd(p, f, hn::Set(d, 0.009618082519990467f));
  p = hn::MulAdd(p, f, hn::Set(d, 0.05550357071152507f));
  p = hn::MulAdd(p, f, hn::Set(d, 0.24022650760645808f));
  p = hn::MulAdd(p, f, hn::Set(d, 0.6931471880352003f));
  return hn::MulAdd(p, f, hn::Set(d, 1.0f));
}

// Returns 2^x for |x| <= 126, within 1.5 units in the last place. NaN stays NaN.
HWY_INLINE Vec exp2_bounded(Vec x) {
  Vec n = hn::Round(x);
  return hn::Mul(exp2_fraction(hn::Sub(x, n)), power_of_two(hn::ConvertTo(Ints(), n)));
}

// Returns 2^x for x <= 0 (or a little above), with the accuracy of exp2_bounded(); 0 below -126.
HWY_INLINE Vec exp2_negative(Vec x) {
  const Lanes d;
  Vec low = hn::Set(d, -126.0f), n = hn::Round(hn::Max(low, x));
  Vec y = hn::Mul(exp2_fraction(hn::Sub(x, n)), power_of_two(hn::ConvertTo(Ints(), n)));
  return hn::IfThenZeroElse(hn::Lt(x, low), y);
}

constexpr float kLog2E = 1.44269504088896341f;
constexpr float kLn2 = 0.693147180559945309f;

// Returns exp(x) for x <= 0 (or a little above), within 2 units in the last place; 0 below -87.
HWY_INLINE Vec exp_negative(Vec x) {
  const Lanes d;
  Vec bounded = hn::Max(hn::Set(d, -87.0f), x), n = hn::Round(hn::Mul(bounded, hn::Set(d, kLog2E)));
  // r = x - n ln 2, where ln 2 is split into two constants so that r is accurate in f32. The
  // argument of exp2_fraction() is r / ln 2.
  Vec r = hn::NegMulAdd(n, hn::Set(d, 0.693145752f), x);
  r = hn::NegMulAdd(n, hn::Set(d, 1.42860677e-6f), r);
  Vec y = hn::Mul(exp2_fraction(hn::Mul(r, hn::Set(d, kLog2E))),
                  power_of_two(hn::ConvertTo(Ints(), n)));
  return hn::IfThenZeroElse(hn::Lt(x, hn::Set(d, -87.0f)), y);
}

// Returns tanh(x). Where 1 - exp(-2|x|) would cancel, the result is x plus an odd polynomial,
// fitted by least squares with a relative error of 2.7e-9.
HWY_INLINE Vec tanh_of(Vec x) {
  const Lanes d;
  const Vec one = hn::Set(d, 1.0f);
  Vec size = hn::Abs(x), xx = hn::Mul(x, x);
  Vec p = hn::Set(d, -0.006264368072152138f);
  p = hn::MulAdd(p, xx, hn::Set(d, 0.021064136177301407f));
  p = hn::MulAdd(p, xx, hn::Set(d, -0.05385029688477516f));
  p = hn::MulAdd(p, xx, hn::Set(d, 0.13332565128803253f));
  p = hn::MulAdd(p, xx, hn::Set(d, -0.33333316445350647f));
  Vec near = hn::MulAdd(hn::Mul(x, xx), p, x);
  Vec e = exp_negative(hn::Mul(size, hn::Set(d, -2.0f)));
  Vec far = hn::CopySign(hn::Div(hn::Sub(one, e), hn::Add(one, e)), x);
  return hn::IfThenElse(hn::Lt(size, hn::Set(d, 0.55f)), near, far);
}

// y[e] = f(x[e]...) for e in [begin, end). f must accept zeros, which fill up the last vector.
template <typename Y, typename F, typename... X>
HWY_INLINE void map(int64_t begin, int64_t end, Y* y, const F& f, const X*... x) {
  int64_t e = begin, step = lanes();
  for (; e + step <= end; e += step) store(f(load(x + e)...), y + e);
  if (e < end) store_part(f(load_part(x + e, end - e)...), y + e, end - e);
}

// y[e] = f(x[e]...) for all elements, as tasks of the team.
template <typename Y, typename F, typename... X>
void map_all(const KernelContext& c, Y* y, const F& f, const X*... x) {
  for_blocks(c.team, c.out[0].numel(), ds::cpu::kBlock, [=](int64_t begin, int64_t end) HWY_ATTR {
    // With a copy of f on this task's stack, the constants in f stay in registers.
    const F own = f;
    map(begin, end, y, own, x...);
  });
}

// Return the sum and the maximum of a vector's lanes. The order of the sum depends on the target.
HWY_INLINE float sum(Vec v) { return hn::GetLane(hn::SumOfLanes(Lanes(), v)); }
HWY_INLINE float maximum(Vec v) { return hn::GetLane(hn::MaxOfLanes(Lanes(), v)); }

}  // namespace ds::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
