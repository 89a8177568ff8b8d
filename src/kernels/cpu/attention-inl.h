// Operations on rows of scores that the forward and backward passes of attention share: masking,
// dropout and products of pairs. Compiled once per instruction set.
#if defined(DS_KERNELS_CPU_ATTENTION_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef DS_KERNELS_CPU_ATTENTION_INL_H_
#undef DS_KERNELS_CPU_ATTENTION_INL_H_
#else
#define DS_KERNELS_CPU_ATTENTION_INL_H_
#endif

#include <algorithm>
#include <cstdint>

#include "core/base/round.h"
#include "kernels/cpu/attention.h"
#include "kernels/cpu/pairs-inl.h"
#include "kernels/cpu/philox-inl.h"
#include "kernels/cpu/simd-inl.h"
#include "kernels/cpu/tile_product.h"
#include "kernels/formulas/attention_dropout.h"

HWY_BEFORE_NAMESPACE();
namespace ds::cpu::HWY_NAMESPACE {

static_assert(kStrip % hn::MaxLanes(Lanes()) == 0);

// Returns whether bf16 operands are multiplied in pairs (pairs-inl.h). Then products of elements of
// q, k, v and dy are exact, as in f32, but weights and their gradients are rounded to bf16 before
// they are multiplied. Sums and everything else are f32.
inline bool takes_pairs(const HeadsShape& s) { return runs_pairs() && s.depth % 2 == 0 && !s.mask; }

// Products of matrices of pairs, in strips of rows. AMX tiles are used if the machine has them.
class PairProducts {
 public:
  // Computes the product that TileProduct describes, with rows <= kStrip.
  HWY_INLINE void multiply(const TileProduct& p) {
    if (runs_tiles()) return tiles_.multiply(p);
    gemm(p.rows, p.columns, p.pairs, {p.a, p.a_row, 1}, p.b, p.b_row, p.c, p.c_row, p.add,
         Pairs{p.scale});
  }

 private:
  TileProducts tiles_;
};

// Sets the scores in the columns of `all` that are outside `seen` to -infinity. `all` begins and
// ends at multiples of kStrip.
HWY_INLINE void hide_outside(float* row, Range all, Range seen) {
  const Lanes d;
  const Vec minus = hn::Set(d, -INFINITY);
  for (int64_t j = all.begin; j < all.end; j += lanes()) {
    if (j >= seen.begin && j + lanes() <= seen.end) {
      // Skip to the last vector that is entirely in `seen`.
      j = std::max(j, seen.end / lanes() * lanes() - lanes());
      continue;
    }
    auto before =
        hn::FirstN(d, static_cast<size_t>(std::clamp<int64_t>(seen.begin - j, 0, lanes())));
    auto until = hn::FirstN(d, static_cast<size_t>(std::clamp<int64_t>(seen.end - j, 0, lanes())));
    Vec kept = hn::IfThenElse(until, load(row + j), minus);
    store(hn::IfThenElse(before, minus, kept), row + j);
  }
}

// Turns products of packed q and k into scores times log2 e, and into -infinity where the row does
// not see the key. `limit` is HeadsShape::limit; without a cap the products already are scores
// times log2 e. `unseen` has one number for each column, below 0 for a masked key; it is null
// without a mask.
HWY_INLINE void finish_scores(float* row, Range all, Range seen, float limit, const float* unseen) {
  const Lanes d;
  if (limit > 0) {
    for (int64_t j = all.begin; j < all.end; j += lanes()) {
      store(hn::Mul(tanh_of(load(row + j)), hn::Set(d, limit)), row + j);
    }
  }
  if (unseen) {
    for (int64_t j = all.begin; j < all.end; j += lanes()) {
      auto hidden = hn::Lt(load(unseen + j), hn::Zero(d));
      store(hn::IfThenElse(hidden, hn::Set(d, -INFINITY), load(row + j)), row + j);
    }
  }
  if (seen.begin > all.begin || seen.end < all.end) hide_outside(row, all, seen);
}

// Fills unseen[0, keys) from the mask of rows [first, first + keys), and marks the columns from
// there to the next multiple of kStrip as masked. Sets the rows of `packed`, each `padded` floats
// long, with masked keys to 0, so that an infinity or NaN in them cannot make a sum NaN. Returns
// `unseen`, or null without a mask.
HWY_INLINE const float* pack_mask(const HeadsShape& s, int64_t first, int64_t keys, float* unseen,
                                  float* packed, int64_t padded) {
  if (!s.mask) return nullptr;
  for (int64_t j = 0; j < keys; ++j) {
    bool hidden = s.mask[first + j] == 0;
    unseen[j] = hidden ? -1.0f : 0.0f;
    if (hidden) std::fill_n(packed + j * padded, padded, 0.0f);
  }
  std::fill(unseen + keys, unseen + round_up(keys, kStrip), -1.0f);
  return unseen;
}

// Returns the number of floats that kept_weights() needs for one row and a block of keys.
inline int64_t kept_room(const HeadsShape& s) { return s.columns() + 2 * AttentionDropout::kUnit; }

// Returns the dropout factors of the weights of query `row` of the batch, for the keys of its
// sequence from k0 + all.begin to k0 + all.end: 0 for a dropped weight, otherwise drop.factor.
// Returns null without dropout.
HWY_INLINE const float* kept_weights(const AttentionDropout& drop, int64_t row, int64_t head,
                                     int64_t k0, Range all, float* room) {
  static_assert(4 * hn::MaxLanes(Lanes()) <= AttentionDropout::kUnit);
  if (!drop.on()) return nullptr;
  const Lanes d;
  const Vec share = hn::Set(d, drop.share), factor = hn::Set(d, static_cast<float>(drop.factor));
  uint32_t words[4 * HWY_MAX_BYTES / sizeof(uint32_t)];
  int64_t first = (k0 + all.begin) / AttentionDropout::kUnit * AttentionDropout::kUnit;
  int64_t count = k0 + all.end - first, at_once = 4 * lanes(),
          word = drop.first_word(row, head) + first;
  for (int64_t j = 0; j < count; j += at_once) {
    draw(drop.stream, static_cast<uint64_t>((word + j) / 4), words);
    for (int64_t i = 0; i < at_once; i += lanes()) {
      store(hn::IfThenElseZero(hn::Ge(uniform(words + i), share), factor), room + j + i);
    }
  }
  return room + (k0 + all.begin - first);
}

}  // namespace ds::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
