#pragma once
#include <array>
#include <bit>
#include <cstdint>

#include "core/base/dtype.h"
#include "core/base/random.h"
#include "kernels/kernel.h"

namespace ds {

// A block of 512 elements of a parameter draws only 64 words of Philox, which saves seven eighths
// of its work. Element e of the block uses word e mod 64 times kParts[e / 64]; these constants are
// odd, so every product is equally likely. Although eight elements share each word, the correlation
// of any two elements of a block is at most 0.004.
inline constexpr int64_t kDrawn = 512, kBlockWords = 64;
inline constexpr uint32_t kParts[] = {1,           0x85EBCA6Bu, 0xC2B2AE35u, 0x27D4EB2Fu,
                                      0x165667B1u, 0xCC9E2D51u, 0x1B873593u, 0xE6546B65u};

// How an update rounds the masters and states that it keeps in bf16: to nearest or, if `on`,
// stochastically. Stochastic rounding adds random bits below the last bit that is kept. The result
// is one of the two neighbours of x, the nearer one more often, and equals x on average. So a
// moment that changes by less than its last bit in each step moves on average as it would in f32.
// The random word of an element depends only on seed, step, parameter and element, so it is the
// same for every ZeRO stage, tier and number of ranks.
struct Rounding {
  bool on;
  RandomStream stream;
  // The index, within the parameter, of the operands' first element.
  int64_t first;

  explicit Rounding(const KernelContext& c)
      : on(c.attrs.integer_or("stochastic", 0) != 0),
        stream{c.scalars.seed ^ kStream, static_cast<uint32_t>(c.scalars.step),
               static_cast<uint32_t>(c.scalars.param), 0},
        first(c.scalars.element) {}
  // Returns the random word of element e of the operands.
  uint32_t word(int64_t e) const {
    const int64_t at = first + e, index = at / kDrawn * kBlockWords + at % kBlockWords;
    const uint32_t drawn =
        stream.block(static_cast<uint64_t>(index / 4))[static_cast<size_t>(index % 4)];
    return drawn * kParts[at % kDrawn / kBlockWords];
  }

 private:
  // Distinguishes these random words from those of dropout and of initial values.
  static constexpr uint64_t kStream = 0x726f756e64696e67;
};

// Selects the 16 bits of a word that round state 0 (low), state 1 (high) or the master (mixed).
enum class Draw : int8_t { low = 0, high, mixed };
inline constexpr uint32_t kMix = 0x9E3779B9u;

inline uint32_t draw_bits(uint32_t word, Draw draw) {
  return draw == Draw::low ? word & 0xffffu : draw == Draw::high ? word >> 16 : (word * kMix) >> 16;
}

// Rounds x stochastically with 16 random bits. An infinity stays infinite, a NaN stays NaN, and a
// finite number never becomes infinite.
inline bf16 round_by(float x, uint32_t bits) {
  constexpr uint32_t kExponent = 0x7f800000u;
  uint32_t u = std::bit_cast<uint32_t>(x), sum = u + bits;
  bool special = (u & kExponent) == kExponent || (sum & kExponent) == kExponent;
  if (special) sum = x != x ? u | 0x400000u : u;
  bf16 out;
  out.bits = static_cast<uint16_t>(sum >> 16);
  return out;
}

}  // namespace ds
