// Random words in vectors, compiled once per instruction set.
#if defined(DS_KERNELS_CPU_PHILOX_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef DS_KERNELS_CPU_PHILOX_INL_H_
#undef DS_KERNELS_CPU_PHILOX_INL_H_
#else
#define DS_KERNELS_CPU_PHILOX_INL_H_
#endif

#include <cstdint>

#include "core/base/random.h"
#include "kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ds::cpu::HWY_NAMESPACE {

// Philox4x32-10 of consecutive blocks, one per lane; core/base/random.cpp defines the stream.
using U32 = hn::Vec<Words>;

// High and low halves of the products of all lanes of a with k.
#if HWY_TARGET == HWY_SCALAR
HWY_INLINE void multiply(U32 a, uint32_t k, U32& high, U32& low) {
  uint64_t product = uint64_t{hn::GetLane(a)} * k;
  high = hn::Set(Words(), static_cast<uint32_t>(product >> 32));
  low = hn::Set(Words(), static_cast<uint32_t>(product));
}
#else
HWY_INLINE void multiply(U32 a, uint32_t k, U32& high, U32& low) {
  const Words d;
  const hn::Repartition<uint64_t, Words> wide;
  U32 factor = hn::Set(d, k);
  auto even = hn::MulEven(a, factor);
  auto odd = hn::MulEven(hn::BitCast(d, hn::ShiftRight<32>(hn::BitCast(wide, a))), factor);
  high = hn::OddEven(hn::BitCast(d, odd), hn::BitCast(d, hn::ShiftRight<32>(even)));
  low = hn::OddEven(hn::BitCast(d, hn::ShiftLeft<32>(odd)), hn::BitCast(d, even));
}
#endif

// The 4 * lanes() words of the blocks from `block` on, in order. block is a multiple of lanes().
HWY_INLINE void draw(const RandomStream& s, uint64_t block, uint32_t* words) {
  const Words d;
  U32 index = hn::Add(hn::Set(d, static_cast<uint32_t>(block)), hn::Iota(d, 0));
  // Blocks of one call share the upper half of their numbers.
  U32 c0 = index, c1 = hn::Set(d, static_cast<uint32_t>(block >> 32) ^ (s.op << 16));
  U32 c2 = hn::Set(d, s.step), c3 = hn::Set(d, s.leaf);
  auto k0 = static_cast<uint32_t>(s.seed), k1 = static_cast<uint32_t>(s.seed >> 32);
  for (int round = 0; round < 10; ++round) {
    U32 high0, low0, high1, low1;
    multiply(c0, 0xD2511F53u, high0, low0);
    multiply(c2, 0xCD9E8D57u, high1, low1);
    c0 = hn::Xor(hn::Xor(high1, c1), hn::Set(d, k0));
    c1 = low1;
    c2 = hn::Xor(hn::Xor(high0, c3), hn::Set(d, k1));
    c3 = low0;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  hn::StoreInterleaved4(c0, c1, c2, c3, d, words);
}

// uniform01() of lanes() words.
HWY_INLINE Vec uniform(const uint32_t* words) {
  auto top = hn::BitCast(Ints(), hn::ShiftRight<8>(hn::LoadU(Words(), words)));
  return hn::Mul(hn::ConvertTo(Lanes(), top), hn::Set(Lanes(), 0x1p-24f));
}

}  // namespace ds::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
