#pragma once
#include <array>
#include <bit>
#include <cstdint>

#include "core/base/dtype.h"
#include "core/base/random.h"
#include "kernels/kernel.h"

namespace ds {

// Draws of a block of 512 elements of a parameter are made of 64 words of Philox: element e has
// word e mod 64 times the constant of its part. Every element has every word equally often; eight
// share what is drawn, and no two of a block are correlated by more than 0.004.
inline constexpr int64_t kDrawn = 512, kBlockWords = 64;
inline constexpr uint32_t kParts[] = {1,           0x85EBCA6Bu, 0xC2B2AE35u, 0x27D4EB2Fu,
                                      0x165667B1u, 0xCC9E2D51u, 0x1B873593u, 0xE6546B65u};

// How an update rounds masters and states that it keeps in bf16: to nearest, or by draws. A draw is
// added below the last bit that stays, so that x becomes one of its two neighbours, each as often
// as x is near the other; a moment that changes by less than its last bit in every step moves on
// average as it would in f32. Element e of a parameter has a word that seed, step and parameter
// name, so that neither stage nor tier nor ranks change what is drawn.
struct Rounding {
  bool on;
  RandomStream stream;
  int64_t first;  // element of its parameter where the operands begin

  explicit Rounding(const KernelContext& c)
      : on(c.attrs.integer_or("stochastic", 0) != 0),
        stream{c.scalars.seed ^ kStream, static_cast<uint32_t>(c.scalars.step),
               static_cast<uint32_t>(c.scalars.param), 0},
        first(c.scalars.element) {}
  // Of element e of the operands.
  uint32_t word(int64_t e) const {
    const int64_t at = first + e, index = at / kDrawn * kBlockWords + at % kBlockWords;
    const uint32_t drawn =
        stream.block(static_cast<uint64_t>(index / 4))[static_cast<size_t>(index % 4)];
    return drawn * kParts[at % kDrawn / kBlockWords];
  }

 private:
  static constexpr uint64_t kStream =
      0x726f756e64696e67;  // none of dropout or initial values has it
};

// What 16 bits of a word round: state 0, state 1, the master.
enum class Draw : int8_t { low = 0, high, mixed };
inline constexpr uint32_t kMix = 0x9E3779B9u;

inline uint32_t draw_bits(uint32_t word, Draw draw) {
  return draw == Draw::low ? word & 0xffffu : draw == Draw::high ? word >> 16 : (word * kMix) >> 16;
}

// x rounded by 16 drawn bits. What is not finite stays so, and nothing finite becomes infinite.
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
