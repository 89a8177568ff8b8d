// What both directions of attention do to rows of scores, compiled once per instruction set.
#if defined(DS_KERNELS_CPU_ATTENTION_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef DS_KERNELS_CPU_ATTENTION_INL_H_
#undef DS_KERNELS_CPU_ATTENTION_INL_H_
#else
#define DS_KERNELS_CPU_ATTENTION_INL_H_
#endif

#include <algorithm>
#include <cstdint>

#include "core/base/round.h"
#include "kernels/attention_dropout.h"
#include "kernels/cpu/attention.h"
#include "kernels/cpu/pairs-inl.h"
#include "kernels/cpu/philox-inl.h"
#include "kernels/cpu/simd-inl.h"
#include "kernels/cpu/tile_product.h"

HWY_BEFORE_NAMESPACE();
namespace ds::cpu::HWY_NAMESPACE {

static_assert(kStrip % hn::MaxLanes(Lanes()) == 0);

// Whether products of bf16 operands run in pairs: exact ones of q, k, v and dy, as in f32, and
// those of weights and their gradients rounded to bf16. Sums and all else are f32.
inline bool takes_pairs(const HeadsShape& s) { return runs_pairs() && s.depth % 2 == 0 && !s.mask; }

// Products of pairs in strips of rows, by tiles where the machine has them.
class PairProducts {
 public:
  // c[rows, columns] = a b scale, rows <= kStrip; rows of a and c, and of b, are words apart.
  HWY_INLINE void multiply(const TileProduct& p) {
    if (runs_tiles()) return tiles_.multiply(p);
    gemm(p.rows, p.columns, p.pairs, {p.a, p.a_row, 1}, p.b, p.b_row, p.c, p.c_row, p.add,
         Pairs{p.scale});
  }

 private:
  TileProducts tiles_;
};

// -infinity in the columns of `all` (multiples of kStrip) that are not in `seen`.
HWY_INLINE void hide_outside(float* row, Range all, Range seen) {
  const Lanes d;
  const Vec minus = hn::Set(d, -INFINITY);
  for (int64_t j = all.begin; j < all.end; j += lanes()) {
    if (j >= seen.begin && j + lanes() <= seen.end) {
      j = std::max(j,
                   seen.end / lanes() * lanes() - lanes());  // to the last vector that is all seen
      continue;
    }
    auto before =
        hn::FirstN(d, static_cast<size_t>(std::clamp<int64_t>(seen.begin - j, 0, lanes())));
    auto until = hn::FirstN(d, static_cast<size_t>(std::clamp<int64_t>(seen.end - j, 0, lanes())));
    Vec kept = hn::IfThenElse(until, load(row + j), minus);
    store(hn::IfThenElse(before, minus, kept), row + j);
  }
}

// Products of packed q and k become scores times log2 e, -infinity where the row does not see the
// key. unseen: per column 0, or below 0 for a key that is masked; null without a mask.
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

// Fills unseen[0, keys) from the mask of rows [first, first + keys), and rows of `packed` whose
// keys are masked with 0, so that nothing of them is read. Returns null when there is no mask.
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

// Room for kept_weights() of one row in a block of keys.
inline int64_t kept_room(const HeadsShape& s) { return s.columns() + 2 * AttentionDropout::kUnit; }

// What dropout multiplies the weights of a row of the batch by, for the keys of its sequence from
// k0 + all.begin to k0 + all.end: 0, or the factor of those that are kept. Null without dropout.
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
