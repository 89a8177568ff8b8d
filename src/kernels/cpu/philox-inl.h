// Random words in vectors, compiled once per instruction set. The words are those of
// core/base/random.h, so every family drops the same elements.
#if defined(DS_KERNELS_CPU_PHILOX_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef DS_KERNELS_CPU_PHILOX_INL_H_
#undef DS_KERNELS_CPU_PHILOX_INL_H_
#else
#define DS_KERNELS_CPU_PHILOX_INL_H_
#endif

#include <algorithm>
#include <cstdint>

#include "core/base/random.h"
#include "kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ds::cpu::HWY_NAMESPACE {

// A vector of 32-bit words. draw() computes Philox4x32-10, which core/base/random.cpp defines, for
// several consecutive blocks at once.
using U32 = hn::Vec<Words>;

#if HWY_TARGET == HWY_SCALAR
// Draws the 4 * lanes() words of the blocks from `block` on, in order; `block` is a multiple of
// lanes(). The two halves of the blocks are computed side by side, with one block in each 64-bit
// lane, so that a product is one instruction. The bits above the low 32 of a counter are never
// read.
HWY_INLINE void draw(const RandomStream& s, uint64_t block, uint32_t* words) {
  const auto drawn = s.block(block);
  std::copy(drawn.begin(), drawn.end(), words);
}
#else
HWY_INLINE void draw(const RandomStream& s, uint64_t block, uint32_t* words) {
  const Words d;
  const hn::Repartition<uint64_t, Words> wide;
  using U64 = hn::Vec<decltype(wide)>;
  const auto product = [&](U64 a, U32 k) HWY_ATTR { return hn::MulEven(hn::BitCast(d, a), k); };
  const U32 factor0 = hn::Set(d, 0xD2511F53u), factor1 = hn::Set(d, 0xCD9E8D57u);
  const uint64_t half = static_cast<uint64_t>(hn::Lanes(wide));
  // The blocks of one call share the upper half of their 64-bit indices.
  const U64 first = hn::Iota(wide, block & 0xffffffffu), step = hn::Set(wide, s.step),
            leaf = hn::Set(wide, s.leaf),
            upper = hn::Set(wide, static_cast<uint32_t>(block >> 32) ^ (s.op << 16));
  U64 a[] = {first, upper, step, leaf},
      b[] = {hn::Add(first, hn::Set(wide, half)), upper, step, leaf};
  U64 k0 = hn::Set(wide, static_cast<uint32_t>(s.seed)), k1 = hn::Set(wide, s.seed >> 32);
  // One round of Philox: two 32 x 32 -> 64 bit products, whose halves are exchanged and mixed with
  // the key.
  const auto round = [&](U64 * c) HWY_ATTR __attribute__((always_inline)) {
    const U64 p0 = product(c[0], factor0), p1 = product(c[2], factor1);
    c[0] = hn::Xor3(hn::ShiftRight<32>(p1), c[1], k0);
    c[2] = hn::Xor3(hn::ShiftRight<32>(p0), c[3], k1);
    c[1] = p1;
    c[3] = p0;
  };
  for (int i = 0; i < 10; ++i) {
    round(a);
    round(b);
    k0 = hn::Add(k0, hn::Set(wide, 0x9E3779B9u));
    k1 = hn::Add(k1, hn::Set(wide, 0xBB67AE85u));
  }
  // Joins the low 32 bits of c[0] with those of c[1], and of c[2] with those of c[3], and
  // interleaves the results, which puts the four words of a block next to each other.
  const auto keep_chain = [&](const U64* c, uint64_t* to) HWY_ATTR {
    const auto pair = [&](U64 low, U64 high) HWY_ATTR {
      const U32 upper = hn::BitCast(d, hn::ShiftLeft<32>(high));
      return hn::BitCast(wide, hn::OddEven(upper, hn::BitCast(d, low)));
    };
    hn::StoreInterleaved2(pair(c[0], c[1]), pair(c[2], c[3]), wide, to);
  };
  keep_chain(a, reinterpret_cast<uint64_t*>(words));
  keep_chain(b, reinterpret_cast<uint64_t*>(words) + 2 * half);
}
#endif

// Returns uniform01() of lanes() words.
HWY_INLINE Vec uniform(const uint32_t* words) {
  auto top = hn::BitCast(Ints(), hn::ShiftRight<8>(hn::LoadU(Words(), words)));
  return hn::Mul(hn::ConvertTo(Lanes(), top), hn::Set(Lanes(), 0x1p-24f));
}

}  // namespace ds::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
