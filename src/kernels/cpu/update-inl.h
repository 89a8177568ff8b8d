// The loop that elementwise optimizers share, bit-identical to the reference, compiled once per
// instruction set. Memory bounds an update, so it is one pass: load gradient, master and states,
// compute in f32, round and store. An optimizer supplies its constants (Step) and its arithmetic on
// one vector (`update`).
//
// Two things complicate this. bf16 masters and states are cheapest to load and store as pairs of
// elements (see Two). And rounding them, to nearest or stochastically, is a plain sum of integers
// only if no element is infinite or NaN; one test detects such elements, and a slow path handles
// them (see watch_none()).
#if defined(DS_KERNELS_CPU_UPDATE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef DS_KERNELS_CPU_UPDATE_INL_H_
#undef DS_KERNELS_CPU_UPDATE_INL_H_
#else
#define DS_KERNELS_CPU_UPDATE_INL_H_
#endif

#include <hwy/cache_control.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/philox-inl.h"
#include "kernels/cpu/simd-inl.h"
#include "kernels/formulas/rounding.h"
#include "kernels/formulas/skipped.h"

HWY_BEFORE_NAMESPACE();
namespace ds::cpu::HWY_NAMESPACE {

// An update reads and writes more arrays at once than the hardware prefetchers of a core can
// follow. Software prefetches, this many elements ahead, shorten an update of bf16 masters and
// states by a tenth (measured alternately on Zen 5). An update of f32 masters and states is bound
// by memory bandwidth and takes the same time.
constexpr int64_t kAhead = 768;

template <typename T>
HWY_INLINE void fetch(const T* from, int64_t count) {
  constexpr int64_t kOfLine = 64 / static_cast<int64_t>(sizeof(T));
  for (int64_t e = 0; e < count; e += kOfLine) hwy::Prefetch(from + kAhead + e);
}

// Two vectors of elements, in sequence or woven. In a woven pair, `a` has the elements with even
// indices and `b` those with odd ones. A bf16 array holds a woven pair in the lower and the upper
// halves of its words, which a shift and a mask separate and join; a pair in sequence needs
// shuffles. From an f32 array, a pair in sequence needs no work, but each vector of a woven pair
// needs a shuffle. The order does not change results.
struct Two {
  Vec a, b;
};
struct TwoWords {
  U32 a, b;
};
HWY_INLINE int64_t pair_lanes() { return 2 * lanes(); }
HWY_INLINE TwoWords no_words() { return {hn::Zero(Words()), hn::Zero(Words())}; }

// weave() turns a pair in sequence into a woven one, separate() loads one from bf16, and
// store_upper() stores the upper halves of the words of a pair. In the scalar target vectors have
// one element, so both orders are the same.
#if HWY_TARGET == HWY_SCALAR
HWY_INLINE TwoWords weave(U32 first, U32 second) { return {first, second}; }
HWY_INLINE TwoWords separate(const uint16_t* at) {
  const Words d;
  return {hn::Set(d, uint32_t{at[0]} << 16), hn::Set(d, uint32_t{at[1]} << 16)};
}
template <bool woven>
HWY_INLINE void store_upper(const TwoWords& x, uint16_t* to) {
  to[0] = static_cast<uint16_t>(hn::GetLane(x.a) >> 16);
  to[1] = static_cast<uint16_t>(hn::GetLane(x.b) >> 16);
}
#else
using Shorts = hn::Repartition<uint16_t, Words>;
using U16 = hn::Vec<Shorts>;
HWY_INLINE TwoWords weave(U32 first, U32 second) {
  const Words d;
  return {hn::ConcatEven(d, second, first), hn::ConcatOdd(d, second, first)};
}
HWY_INLINE TwoWords separate(const uint16_t* at) {
  const Words d;
  const U32 both = hn::BitCast(d, hn::LoadU(Shorts(), at));
  return {hn::ShiftLeft<16>(both), hn::And(both, hn::Set(d, 0xffff0000u))};
}
template <bool woven>
HWY_INLINE U16 upper_halves(const TwoWords& x) {
  const Shorts d;
  const U16 b = hn::BitCast(d, x.b);
  if constexpr (woven) return hn::OddEven(b, hn::BitCast(d, hn::ShiftRight<16>(x.a)));
  return hn::ConcatOdd(d, b, hn::BitCast(d, x.a));
}
template <bool woven>
HWY_INLINE void store_upper(const TwoWords& x, uint16_t* to) {
  hn::StoreU(upper_halves<woven>(x), Shorts(), to);
}
#endif

HWY_INLINE TwoWords bits_of(const Two& v) {
  const Words d;
  return {hn::BitCast(d, v.a), hn::BitCast(d, v.b)};
}

// Loads two vectors of elements as f32, in sequence or woven.
template <bool woven, typename T>
HWY_INLINE Two load_two(const T* at) {
  if constexpr (!woven) {
    return {load(at), load(at + lanes())};
  } else {
    const Lanes d;
    TwoWords x = no_words();
    if constexpr (std::is_same_v<T, bf16>) {
      x = separate(reinterpret_cast<const uint16_t*>(at));
    } else {
      const TwoWords in_sequence = bits_of({load(at), load(at + lanes())});
      x = weave(in_sequence.a, in_sequence.b);
    }
    return {hn::BitCast(d, x.a), hn::BitCast(d, x.b)};
  }
}

// Draws the kBlockWords words of a block of kDrawn elements of the parameter, and stores them in
// woven pairs if `woven`.
template <bool woven>
HWY_INLINE void draw_words(const Rounding& rounding, int64_t block, uint32_t* words) {
  const Words d;
  const int64_t first = block * (kBlockWords / 4);
  for (int64_t at = 0; at < kBlockWords; at += 4 * lanes())
    draw(rounding.stream, static_cast<uint64_t>(first + at / 4), words + at);
  for (int64_t at = 0; woven && at < kBlockWords; at += pair_lanes()) {
    const TwoWords pair = weave(hn::Load(d, words + at), hn::Load(d, words + at + lanes()));
    hn::Store(pair.a, d, words + at);
    hn::Store(pair.b, d, words + at + lanes());
  }
}

// The random words of a block of kDrawn elements, from element `first` of the block on, a multiple
// of kBlockWords. Each word is computed where it is used, which takes no longer than storing a word
// for every element.
class PartWords {
 public:
  HWY_INLINE PartWords(const uint32_t* words, int64_t first)
      : words_(words), part_(kParts + first / kBlockWords) {}
  uint32_t word(int64_t e) const { return words_[e % kBlockWords] * part_[e / kBlockWords]; }
  // Return the words of a pair of vectors, and these words times kMix, as Draw::mixed needs them.
  HWY_INLINE TwoWords pair(int64_t e) const { return times(e, part_[e / kBlockWords]); }
  HWY_INLINE TwoWords mixed(int64_t e) const { return times(e, part_[e / kBlockWords] * kMix); }

 private:
  HWY_INLINE TwoWords times(int64_t e, uint32_t factor) const {
    const Words d;
    const U32 by = hn::Set(d, factor);
    const uint32_t* const from = words_ + e % kBlockWords;
    return {hn::Mul(hn::Load(d, from), by), hn::Mul(hn::Load(d, from + lanes()), by)};
  }

  const uint32_t *words_, *part_;
};

// Elements below 2^64 in magnitude can be rounded to bf16 by adding integers, because none of them
// is a NaN or becomes infinite. One test covers all arrays of an update, because the sum of the
// squares of all elements is finite only if all are that small. watch_none() returns the start of
// this sum: 1 instead of 0, because arithmetic on subnormal sums would be slow.
HWY_INLINE Vec watch_none() { return hn::Set(Lanes(), 1.0f); }
// Adds the squares of elements to `sum`, if they will be rounded to bf16. f32 elements are stored
// unchanged, so they are not watched.
template <typename T>
HWY_INLINE Vec watch(const Two& v, Vec sum) {
  if constexpr (!std::is_same_v<T, bf16>) return sum;
  return hn::MulAdd(v.b, v.b, hn::MulAdd(v.a, v.a, sum));
}
HWY_INLINE bool is_finite(Vec sum) {
  return hn::AllTrue(Lanes(), hn::Le(sum, hn::Set(Lanes(), std::numeric_limits<float>::max())));
}

// Rounds the upper half to nearest, ties to even, by adding 0x7fff and the last bit that is kept.
HWY_INLINE U32 nearest_sum(U32 bits) {
  const Words d;
  const U32 sum = hn::Add(bits, hn::Set(d, 0x7fffu));
  // On AVX-512 a masked addition is one instruction.
  if constexpr (HWY_TARGET <= HWY_AVX3)
    return hn::IfThenElse(hn::TestBit(bits, hn::Set(d, 0x10000u)), hn::Add(sum, hn::Set(d, 1u)),
                          sum);
  return hn::Add(sum, hn::And(hn::ShiftRight<16>(bits), hn::Set(d, 1u)));
}
// Adds the 16 random bits that `which` selects from `word`. For Draw::mixed, `word` must already be
// multiplied by kMix.
template <Draw which>
HWY_INLINE U32 drawn_sum(U32 bits, U32 word) {
  if constexpr (which == Draw::low) return hn::Add(bits, hn::And(word, hn::Set(Words(), 0xffffu)));
  return hn::Add(bits, hn::ShiftRight<16>(word));
}

template <typename M, typename T>
void keep_param(const M* master, T* param);

// Stores pairs of results, woven or in sequence. bf16 is rounded stochastically if `drawn`,
// otherwise to nearest without random words.
template <bool woven, bool drawn>
struct Keeping {
  // Stores elements for which is_finite() was true. `words` are passed to drawn_sum().
  template <Draw which, typename T>
  static HWY_INLINE void keep(const Two& v, T* to, const TwoWords& words) {
    if constexpr (!std::is_same_v<T, bf16>) {
      static_assert(!woven);
      store(v.a, to);
      store(v.b, to + lanes());
    } else {
      const TwoWords x = bits_of(v);
      const auto halves = reinterpret_cast<uint16_t*>(to);
      if constexpr (drawn)
        store_upper<woven>({drawn_sum<which>(x.a, words.a), drawn_sum<which>(x.b, words.b)},
                           halves);
      else
        store_upper<woven>({nearest_sum(x.a), nearest_sum(x.b)}, halves);
    }
  }

  // Stores elements of any value, one at a time.
  template <Draw which, typename T>
  static HWY_NOINLINE void keep_each(Two v, T* to, TwoWords words) {
    constexpr int64_t kMost = 2 * HWY_MAX_BYTES / sizeof(float);
    HWY_ALIGN float x[kMost];
    HWY_ALIGN uint32_t word[kMost];
    store(v.a, x);
    store(v.b, x + lanes());
    hn::StoreU(words.a, Words(), word);
    hn::StoreU(words.b, Words(), word + lanes());
    for (int64_t e = 0; e < pair_lanes(); ++e) {
      const int64_t at = woven ? e % 2 * lanes() + e / 2 : e;
      to[e] = T(x[at]);
      if constexpr (drawn && std::is_same_v<T, bf16>)
        to[e] = round_by(x[at], which == Draw::low ? word[at] & 0xffffu : word[at] >> 16);
    }
  }

  // Stores the master and, if it is another array, the parameter.
  template <typename M, typename T>
  static HWY_INLINE void keep_master(const Two& v, M* master, T* param, const TwoWords& words) {
    keep<Draw::mixed>(v, master, words);
    keep_param(master, param);
  }
  template <typename M, typename T>
  static HWY_INLINE void keep_each_master(const Two& v, M* master, T* param,
                                          const TwoWords& words) {
    keep_each<Draw::mixed>(v, master, words);
    if (param)
      Keeping<false, false>::template keep_each<Draw::mixed>(load_two<false>(master), param, words);
  }
};
// Stores the parameter, converted from the stored master, if it is another array.
template <typename M, typename T>
HWY_INLINE void keep_param(const M* master, T* param) {
  if (param)
    Keeping<false, false>::template keep<Draw::mixed>(load_two<false>(master), param, no_words());
}
// The type that watch() must check for the next master: bf16 if the master is bf16, otherwise the
// type T of the parameter, to which the stored master is then rounded.
template <typename M, typename T>
using MasterWatched = std::conditional_t<std::is_same_v<M, bf16>, M, T>;

// Master and states of lanes() elements. An optimizer with one state leaves `second` as it is.
struct Elements {
  Vec p, first, second;
};

// The operands of an update from one element on.
template <typename G, typename M, typename S, typename T, int n>
struct Place {
  // Weaving an f32 gradient costs less than it saves on master and states in bf16. Weaving an f32
  // master, which is also stored, costs more.
  static constexpr bool kWoven = std::is_same_v<M, bf16> && std::is_same_v<S, bf16>;

  const G* grad;
  M* master;
  S *first, *second;
  // Null if the parameter is the master itself.
  T* param;

  HWY_INLINE Place at(int64_t e) const {
    return {grad + e, master + e, first + e, n == 2 ? second + e : nullptr,
            param ? param + e : nullptr};
  }
  // Prefetches each array of the update.
  HWY_INLINE void fetch_ahead() const {
    const int64_t count = pair_lanes();
    fetch(grad, count);
    fetch(master, count);
    fetch(first, count);
    if constexpr (n == 2) fetch(second, count);
    if (param) fetch(param, count);
  }
  // Updates pair_lanes() elements, whose random words begin at `drawn_at`.
  template <bool drawn, typename Step>
  HWY_INLINE void renew(const Step& step, const PartWords& words, int64_t drawn_at) const {
    using Keep = Keeping<kWoven, drawn>;
    const Two g = load_two<kWoven>(grad), p = load_two<kWoven>(master), s = load_two<kWoven>(first);
    Two t{hn::Zero(Lanes()), hn::Zero(Lanes())};
    if constexpr (n == 2) t = load_two<kWoven>(second);
    const Elements a = update(step, g.a, Elements{p.a, s.a, t.a}),
                   b = update(step, g.b, Elements{p.b, s.b, t.b});
    const Two next_p{a.p, b.p}, next_s{a.first, b.first}, next_t{a.second, b.second};
    Vec sum = watch<S>(next_s, watch_none());
    if constexpr (n == 2) sum = watch<S>(next_t, sum);
    sum = watch<MasterWatched<M, T>>(next_p, sum);
    TwoWords own = no_words(), mixed = own;
    if constexpr (drawn) {
      own = words.pair(drawn_at);
      mixed = words.mixed(drawn_at);
    }
    // In rare cases some element is very large, infinite or NaN.
    if (HWY_UNLIKELY(!is_finite(sum))) {
      Keep::template keep_each<Draw::low>(next_s, first, own);
      if constexpr (n == 2) Keep::template keep_each<Draw::high>(next_t, second, own);
      return Keep::keep_each_master(next_p, master, param, mixed);
    }
    Keep::template keep<Draw::low>(next_s, first, own);
    if constexpr (n == 2) Keep::template keep<Draw::high>(next_t, second, own);
    Keep::keep_master(next_p, master, param, mixed);
  }
  // Updates `count` elements, as part of a pair of vectors whose first `skipped` elements are not
  // touched.
  template <bool drawn, typename Step>
  HWY_NOINLINE void renew_part(const Step& step, const PartWords& words, int64_t drawn_at,
                               int64_t skipped, int64_t count) const {
    constexpr int64_t kMost = 2 * HWY_MAX_BYTES / sizeof(float);
    G g[kMost] = {};
    M m[kMost] = {};
    S s[kMost] = {}, t[kMost] = {};
    T p[kMost] = {};
    std::copy_n(grad, count, g + skipped);
    std::copy_n(master, count, m + skipped);
    std::copy_n(first, count, s + skipped);
    if constexpr (n == 2) std::copy_n(second, count, t + skipped);
    const Place whole{g, m, s, n == 2 ? t : nullptr, param ? p : nullptr};
    whole.template renew<drawn>(step, words, drawn_at);
    std::copy_n(m + skipped, count, master);
    std::copy_n(s + skipped, count, first);
    if constexpr (n == 2) std::copy_n(t + skipped, count, second);
    if (param) std::copy_n(p + skipped, count, param);
  }
};

// Runs an elementwise update. `update(step, grad, elements)` returns the next elements. Step(c)
// holds the constants; Step::kStates, 1 or 2, is the number of states. The operand is grad of type
// G. The results are the master of type M, the states of type S, and param of type T, which may be
// the master.
template <bool drawn, typename G, typename M, typename S, typename T, typename Step>
void update_elements(const KernelContext& c, const Rounding& rounding) {
  constexpr int n = Step::kStates;
  const bool own = c.out[0].data == c.out[n + 1].data;
  const Place<G, M, S, T, n> all{c.in[0].as<G>(), c.out[0].as<M>(), c.out[1].as<S>(),
                                 n == 2 ? c.out[2].as<S>() : nullptr,
                                 own ? nullptr : c.out[n + 1].as<T>()};
  const Step constants(c);
  for_blocks(c.team, c.in[0].numel(), ds::cpu::kBlock, [&](int64_t first, int64_t last) HWY_ATTR {
    const Step step = constants;
    const Place<G, M, S, T, n> place = all;
    HWY_ALIGN uint32_t drawn_words[kBlockWords];
    const PartWords words(drawn_words, 0);
    const int64_t width = pair_lanes();
    for (int64_t e = first, end; e < last; e = end) {
      // The index of element e in its block of kDrawn elements.
      int64_t drawn_at = 0;
      end = last;
      if constexpr (drawn) {
        drawn_at = (rounding.first + e) % kDrawn;
        end = std::min(last, e + kDrawn - drawn_at);
        draw_words<place.kWoven>(rounding, (rounding.first + e) / kDrawn, drawn_words);
      }
      // Words are loaded for whole pairs of vectors, so an update that begins inside a pair first
      // finishes that pair.
      if (const int64_t skipped = drawn_at % width; skipped != 0) {
        const int64_t count = std::min(width - skipped, end - e);
        place.at(e).template renew_part<drawn>(step, words, drawn_at - skipped, skipped, count);
        e += count;
        drawn_at += count;
      }
      for (; e + width <= end; e += width, drawn_at += width) {
        place.at(e).fetch_ahead();
        place.at(e).template renew<drawn>(step, words, drawn_at);
      }
      if (e < end) place.at(e).template renew_part<drawn>(step, words, drawn_at, 0, end - e);
    }
  });
}

// Calls update_elements() for the operands' types. A skipped step only writes param.
template <typename Step>
void update_of_types(const KernelContext& c) {
  if (c.scalars.skip != 0) return skip_update(c);
  const Rounding rounding(c);
  by_type_among<float, bf16>("cpu", c.out[0].dtype, [&](auto m) {
    by_type_among<float, bf16>("cpu", c.out[1].dtype, [&](auto s) {
      by_type(c.out[Step::kStates + 1].dtype, [&](auto t) {
        by_type_among<float, bf16>("cpu", c.in[0].dtype, [&](auto g) {
          using G = decltype(g);
          using M = decltype(m);
          using S = decltype(s);
          using T = decltype(t);
          constexpr bool kMayDraw = std::is_same_v<M, bf16> || std::is_same_v<S, bf16>;
          if constexpr (kMayDraw) {
            if (rounding.on) return update_elements<true, G, M, S, T, Step>(c, rounding);
          }
          update_elements<false, G, M, S, T, Step>(c, rounding);
        });
      });
    });
  });
}

}  // namespace ds::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
