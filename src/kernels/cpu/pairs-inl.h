// Matrix products of bf16 operands that are stored as pairs: two neighbours along k in one 32-bit
// word, the lower k in the low half. The words are in f32 arrays, as gemm-inl.h expects.
// AVX512_BF16 has an instruction for the dot product of two pairs. Compiled once per instruction
// set.
#if defined(DS_KERNELS_CPU_PAIRS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef DS_KERNELS_CPU_PAIRS_INL_H_
#undef DS_KERNELS_CPU_PAIRS_INL_H_
#else
#define DS_KERNELS_CPU_PAIRS_INL_H_
#endif

#include <algorithm>
#include <cstdint>

#include "core/device/cpu_features.h"
#include "kernels/cpu/gemm-inl.h"
#include "kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ds::cpu::HWY_NAMESPACE {

// One vector of f32 rounded to bf16.
using Rounded = hn::Vec<Halves>;

#if HWY_TARGET == HWY_AVX3
// Highway 1.0 has neither of these two instructions, and its targets do not enable the compiler's
// intrinsics for them, so both are written in assembly.
constexpr bool kHasPairs = true;
HWY_INLINE Vec dot_pairs(Vec x, Vec b, Vec sum) {
  asm("vdpbf16ps %2, %1, %0" : "+v"(sum.raw) : "v"(x.raw), "v"(b.raw));
  return sum;
}
HWY_INLINE Rounded rounded(Vec x) {
  Rounded out;
  asm("vcvtneps2bf16 %1, %0" : "=v"(out.raw) : "v"(x.raw));
  return out;
}
#else
// These functions are declared but not defined. No code calls them if kHasPairs is false.
constexpr bool kHasPairs = false;
Vec dot_pairs(Vec x, Vec b, Vec sum);
Rounded rounded(Vec x);
#endif

// Returns whether this target and effective_isa() have the instructions for pairs.
inline bool runs_pairs() {
  static const bool yes = effective_isa() >= Isa::avx512_bf16;
  return kHasPairs && yes;
}

// Returns whether AMX tiles may multiply pairs.
inline bool runs_tiles() {
  static const bool yes = effective_isa() == Isa::amx;
  return kHasPairs && yes;
}

// The Product parameter of gemm() for pairs: k counts words, and the result is multiplied by
// `scale`.
struct Pairs {
  float scale = 1;
  HWY_INLINE Vec add(Vec x, Vec b, Vec sum) const { return dot_pairs(x, b, sum); }
  HWY_INLINE Vec finish(Vec sum) const { return hn::Mul(sum, hn::Set(Lanes(), scale)); }
};

inline const float* words(const bf16* x) { return reinterpret_cast<const float*>(x); }

HWY_INLINE void store(Rounded x, uint16_t* at) { hn::StoreU(x, Halves(), at); }
HWY_INLINE Vec interleave(Rounded low, Rounded high) {
  const Words d;
  auto word = hn::Or(hn::PromoteTo(d, low), hn::ShiftLeft<16>(hn::PromoteTo(d, high)));
  return hn::BitCast(Lanes(), word);
}

// out[ceil(rows / 2), padded] = pairs of neighbouring rows of x[rows, columns], with zeros after
// the end of x.
HWY_INLINE void pack_pairs(const bf16* x, int64_t stride, int64_t rows, int64_t columns, float* out,
                           int64_t padded) {
  const Lanes d;
  const Words bits;
  for (int64_t r = 0; r < rows; r += 2) {
    for (int64_t e = 0; e < padded; e += lanes()) {
      const bf16* at = x + r * stride + e;
      int64_t count = std::min(lanes(), columns - e);
      auto row = [&](const bf16* from) HWY_ATTR {
        return hn::BitCast(bits, count == lanes() ? load(from) : load_part(from, count));
      };
      auto word = hn::Zero(bits);
      if (count > 0) word = hn::ShiftRight<16>(row(at));
      if (count > 0 && r + 1 < rows) word = hn::Or(word, row(at + stride));
      hn::StoreU(hn::BitCast(d, word), d, out + r / 2 * padded + e);
    }
  }
}

}  // namespace ds::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
