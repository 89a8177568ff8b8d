#pragma once
#include <array>
#include <bit>
#include <cstdint>

#include "core/base/dtype.h"
#include "core/base/random.h"
#include "kernels/kernel.h"

namespace ds {

// How an update rounds masters and states that it keeps in bf16: to nearest, or by draws. A draw is added
// below the last bit that stays, so that x becomes one of its two neighbours, each as often as x is near the
// other; a moment that changes by less than its last bit in every step moves on average as it would in f32.
// Element e of a parameter has one word of a stream that seed, step and parameter name, so that neither
// stage nor tier nor ranks change what is drawn.
struct Rounding {
  bool on;
  RandomStream stream;
  int64_t first;  // element of its parameter where the operands begin

  explicit Rounding(const KernelContext& c)
      : on(c.attrs.integer_or("stochastic", 0) != 0),
        stream{c.scalars.seed ^ kStream, static_cast<uint32_t>(c.scalars.step),
               static_cast<uint32_t>(c.scalars.param), 0},
        first(c.scalars.element) {}

 private:
  static constexpr uint64_t kStream = 0x726f756e64696e67;  // none of dropout or initial values has it
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
