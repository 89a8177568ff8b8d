// AdamW whose moments are stored as codes (core/program/state_codes.h). An update decodes the
// moments, then updates and uses them in f32. The largest magnitude in each block of 256 moments
// determines the block's scale, with which they are encoded again, rounded to nearest or
// stochastically.
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>

#include "core/program/state_codes.h"
#include "kernels/formulas/adam_step.h"
#include "kernels/formulas/rounding.h"
#include "kernels/formulas/skipped.h"
#include "kernels/ref/ref.h"
#include "kernels/ref/update.h"

namespace ds::ref {
namespace {

using Block = std::array<float, kStateBlock>;

// Decodes the moments of a block.
void decode(const uint8_t* codes, uint8_t scale, StateCodes kind, Block& out) {
  const StateScale s(kind, scale);
  for (size_t e = 0; e < out.size(); ++e) out[e] = decode_state(codes[e], kind, s);
}

// Computes the scale of a block from the largest magnitude, and the codes. `drawn` holds the random
// bits of each element, or kToNearest. Magnitudes are compared as bits, which have the same order
// as the numbers.
void encode(const Block& in, StateCodes kind, const std::array<uint32_t, kStateBlock>& drawn,
            uint8_t* codes, uint8_t* scale) {
  uint32_t largest = 0;
  for (float x : in) largest = std::max(largest, std::bit_cast<uint32_t>(x) & 0x7fffffffu);
  *scale = state_scale(largest);
  const StateScale s(kind, *scale);
  for (size_t e = 0; e < in.size(); ++e) codes[e] = encode_state(in[e], kind, s, drawn[e]);
}

// Updates block `b` of the operands.
template <typename G, typename M, typename T>
void renew_block(const KernelContext& c, const AdamStep& s, const Rounding& rounding, int64_t b) {
  const int64_t first = b * kStateBlock;
  const G* grad = c.in[0].as<G>() + first;
  M* master = c.out[0].as<M>() + first;
  T* param = c.out[5].as<T>() + first;
  uint8_t *m_codes = c.out[1].as<uint8_t>() + first, *m_scale = c.out[2].as<uint8_t>() + b;
  uint8_t *v_codes = c.out[3].as<uint8_t>() + first, *v_scale = c.out[4].as<uint8_t>() + b;
  Block m, v;
  std::array<uint32_t, kStateBlock> m_drawn, v_drawn;
  m_drawn.fill(kToNearest);
  v_drawn.fill(kToNearest);
  decode(m_codes, *m_scale, StateCodes::with_sign, m);
  decode(v_codes, *v_scale, StateCodes::squares, v);
  for (size_t e = 0; e < m.size(); ++e) {
    float p = static_cast<float>(master[e]) * s.keep;
    float g = static_cast<float>(grad[e]) * s.grad_scale;
    if (s.penalty != 0) g = g + s.penalty * p;
    m[e] = s.beta1 * m[e] + s.one_beta1 * g;
    v[e] = s.beta2 * v[e] + s.one_beta2 * (g * g);
    p = p - (s.rate * m[e]) / (std::sqrt(v[e] * s.correction2) + s.eps);
    uint32_t word = 0;
    if (rounding.on) {
      word = rounding.word(first + static_cast<int64_t>(e));
      m_drawn[e] = mean_bits(word);
      v_drawn[e] = square_bits(word);
    }
    keep(p, master + e, word, Draw::mixed, rounding.on);
    param[e] = static_cast<T>(static_cast<float>(master[e]));
  }
  encode(m, StateCodes::with_sign, m_drawn, m_codes, m_scale);
  encode(v, StateCodes::squares, v_drawn, v_codes, v_scale);
}

// The operand is grad. The results are master, the codes and scales of the mean, the codes and
// scales of the mean of squares, and param.
void adamw_codes(const KernelContext& c) {
  if (c.scalars.skip != 0) return skip_update(c);
  const AdamStep step(c);
  const Rounding rounding(c);
  by_type_among<float, bf16>("reference", c.in[0].dtype, [&](auto g) {
    by_type_among<float, bf16>("reference", c.out[0].dtype, [&](auto m) {
      by_type_among<float, bf16, f16>("reference", c.out[5].dtype, [&](auto t) {
        for (int64_t b = 0; b < c.out[2].numel(); ++b)
          renew_block<decltype(g), decltype(m), decltype(t)>(c, step, rounding, b);
      });
    });
  });
}

}  // namespace

void add_adamw_codes(KernelRegistry& registry) { add_kernel(registry, "adamw_codes", adamw_codes); }

}  // namespace ds::ref
