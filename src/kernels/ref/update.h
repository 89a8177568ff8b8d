#pragma once
// The loop that the elementwise optimizers of the reference share.
#include <array>
#include <cstdint>

#include "kernels/formulas/rounding.h"
#include "kernels/formulas/skipped.h"
#include "kernels/ref/ref.h"

namespace ds::ref {

// Stores x. A bf16 is rounded stochastically with bits of `word` if `drawn`, otherwise to nearest;
// an f32 needs no rounding.
inline void keep(float x, float* to, uint32_t, Draw, bool) { *to = x; }
inline void keep(float x, bf16* to, uint32_t word, Draw draw, bool drawn) {
  *to = drawn ? round_by(x, draw_bits(word, draw)) : bf16(x);
}

// Runs an elementwise update. The operand is grad of type G. The results are the master of type M,
// `n` states of type S, and param of type T. next(g, p, s) updates the master p and the states s of
// an element in place, in f32, with the gradient g. The parameter is rounded from the stored
// master.
template <typename G, typename M, typename S, typename T, size_t n, typename Next>
void update_elements(const KernelContext& c, const Next& next) {
  const G* grad = c.in[0].as<G>();
  M* master = c.out[0].as<M>();
  T* param = c.out[n + 1].as<T>();
  const Rounding rounding(c);
  for (int64_t e = 0; e < c.in[0].numel(); ++e) {
    float p = static_cast<float>(master[e]);
    std::array<float, n> states{};
    for (size_t k = 0; k < n; ++k) states[k] = static_cast<float>(c.out[k + 1].as<S>()[e]);
    next(static_cast<float>(grad[e]), p, states);
    const uint32_t word = rounding.on ? rounding.word(e) : 0;
    // One word rounds the master and up to two states, each with different bits.
    keep(p, master + e, word, Draw::mixed, rounding.on);
    for (size_t k = 0; k < n; ++k)
      keep(states[k], c.out[k + 1].as<S>() + e, word, k == 0 ? Draw::low : Draw::high, rounding.on);
    param[e] = static_cast<T>(static_cast<float>(master[e]));
  }
}

// Calls update_elements() for the operands' types. A skipped step only writes param.
template <size_t n, typename Next>
void update_of_types(const KernelContext& c, const Next& next) {
  if (c.scalars.skip != 0) return skip_update(c);
  by_type_among<float, bf16>("reference", c.out[0].dtype, [&](auto m) {
    by_type_among<float, bf16>("reference", c.out[1].dtype, [&](auto s) {
      by_type_among<float, bf16, f16>("reference", c.out[n + 1].dtype, [&](auto t) {
        by_type_among<float, bf16>("reference", c.in[0].dtype, [&](auto g) {
          update_elements<decltype(g), decltype(m), decltype(s), decltype(t), n>(c, next);
        });
      });
    });
  });
}

}  // namespace ds::ref
