// Elementwise updates of optimizers, compiled once per instruction set.
#if defined(DS_KERNELS_CPU_UPDATE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef DS_KERNELS_CPU_UPDATE_INL_H_
#undef DS_KERNELS_CPU_UPDATE_INL_H_
#else
#define DS_KERNELS_CPU_UPDATE_INL_H_
#endif

#include <hwy/cache_control.h>

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/philox-inl.h"
#include "kernels/cpu/simd-inl.h"
#include "kernels/rounding.h"
#include "kernels/skipped.h"

HWY_BEFORE_NAMESPACE();
namespace ds::cpu::HWY_NAMESPACE {

// An update reads and writes more arrays at once than the prefetchers of a core follow. Asked for by hand,
// this many elements ahead, an update of bf16 masters and states takes a tenth less time (Zen 5, in turns);
// one of f32, which waits for memory alone, takes the same.
constexpr int64_t kAhead = 768;

template <typename T>
HWY_INLINE void fetch(const T* from, int64_t count) {
  constexpr int64_t kOfLine = 64 / static_cast<int64_t>(sizeof(T));
  for (int64_t e = 0; e < count; e += kOfLine) hwy::Prefetch(from + kAhead + e);
}

// Two vectors of elements: their halves of 16 bits fill one.
struct Two {
  Vec a, b;
};
HWY_INLINE int64_t pair_lanes() { return 2 * lanes(); }

template <typename T>
HWY_INLINE Two load_two(const T* at) {
  return {load(at), load(at + lanes())};
}

// The upper halves of the words of two vectors.
#if HWY_TARGET == HWY_SCALAR
HWY_INLINE void store_upper(U32 a, U32 b, uint16_t* to) {
  to[0] = static_cast<uint16_t>(hn::GetLane(a) >> 16);
  to[1] = static_cast<uint16_t>(hn::GetLane(b) >> 16);
}
#else
using Shorts = hn::Repartition<uint16_t, Words>;
using U16 = hn::Vec<Shorts>;
HWY_INLINE U16 upper_halves(U32 a, U32 b) {
  const Shorts d;
  return hn::ConcatOdd(d, hn::BitCast(d, b), hn::BitCast(d, a));
}
HWY_INLINE void store_upper(U32 a, U32 b, uint16_t* to) { hn::StoreU(upper_halves(a, b), Shorts(), to); }
#endif

// The kBlockWords words that a block of kDrawn elements of the parameter is drawn from.
HWY_INLINE void draw_words(const Rounding& rounding, int64_t block, uint32_t* words) {
  const int64_t first = block * (kBlockWords / 4);
  for (int64_t at = 0; at < kBlockWords; at += 4 * lanes())
    draw(rounding.stream, static_cast<uint64_t>(first + at / 4), words + at);
}

// The words of a block of kDrawn elements.
class BlockWords {
 public:
  // Makes those of that block of the parameter.
  HWY_INLINE void renew(const Rounding& rounding, int64_t block) {
    const Words d;
    draw_words(rounding, block, words_);
    for (int64_t part = 1; part < kDrawn / kBlockWords; ++part) {
      for (int64_t e = 0; e < kBlockWords; e += lanes()) {
        const U32 product = hn::Mul(hn::LoadU(d, words_ + e), hn::Set(d, kParts[part]));
        hn::StoreU(product, d, words_ + part * kBlockWords + e);
      }
    }
  }
  const uint32_t* get() const { return words_; }

 private:
  // The last two vectors may end behind the block.
  HWY_ALIGN uint32_t words_[kDrawn + 2 * HWY_MAX_BYTES / sizeof(uint32_t)] = {};
};

// Elements whose magnitudes are below 2^127 can be rounded to bf16 by a sum of words: none becomes infinite,
// none is a NaN. One test serves all arrays of an update: a sum of twice every magnitude is finite only if
// all elements are so. Without magnitudes, one that is fused may be finite though twice an element is not.
template <typename T>
HWY_INLINE Vec watch(const Two& v, Vec sum) {
  if constexpr (!std::is_same_v<T, bf16>) return sum;
  const Vec two = hn::Set(Lanes(), 2.0f);
  return hn::MulAdd(hn::Abs(v.b), two, hn::MulAdd(hn::Abs(v.a), two, sum));
}
template <typename T>
HWY_INLINE Vec watch(const Two& v) {
  return watch<T>(v, hn::Zero(Lanes()));
}
HWY_INLINE bool is_finite(Vec sum) { return hn::AllFalse(Lanes(), hn::IsNaN(hn::Sub(sum, sum))); }

HWY_INLINE U32 nearest_sum(U32 bits) {
  const Words d;
  const U32 odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(d, 1u));
  return hn::Add(hn::Add(bits, hn::Set(d, 0x7fffu)), odd);
}
template <Draw which>
HWY_INLINE U32 drawn_sum(U32 bits, const uint32_t* words) {
  const Words d;
  const U32 word = hn::LoadU(d, words);
  if constexpr (which == Draw::low) return hn::Add(bits, hn::And(word, hn::Set(d, 0xffffu)));
  const U32 mixed = which == Draw::high ? word : hn::Mul(word, hn::Set(d, kMix));
  return hn::Add(bits, hn::ShiftRight<16>(mixed));
}

// Elements that is_finite() has seen; to nearest without words.
template <bool drawn, Draw which, typename T>
HWY_INLINE void keep(const Two& v, T* to, const uint32_t* words) {
  if constexpr (!std::is_same_v<T, bf16>) {
    store(v.a, to);
    store(v.b, to + lanes());
  } else {
    const Words d;
    const U32 a = hn::BitCast(d, v.a), b = hn::BitCast(d, v.b);
    const auto halves = reinterpret_cast<uint16_t*>(to);
    if constexpr (drawn)
      store_upper(drawn_sum<which>(a, words), drawn_sum<which>(b, words + lanes()), halves);
    else
      store_upper(nearest_sum(a), nearest_sum(b), halves);
  }
}

// Any elements, one at a time.
template <Draw which, typename T>
HWY_NOINLINE void keep_each(Two v, T* to, const uint32_t* words) {
  HWY_ALIGN float x[2 * HWY_MAX_BYTES / sizeof(float)];
  store(v.a, x);
  store(v.b, x + lanes());
  for (int64_t e = 0; e < pair_lanes(); ++e) {
    to[e] = T(x[e]);
    if constexpr (std::is_same_v<T, bf16>)
      if (words) to[e] = round_by(x[e], draw_bits(words[e], which));
  }
}

// The master and, where it is another array, the parameter.
template <typename M, typename T>
using MasterWatched = std::conditional_t<std::is_same_v<M, bf16>, M, T>;
template <bool drawn, typename M, typename T>
HWY_INLINE void keep_master(const Two& v, M* master, T* param, const uint32_t* words) {
  keep<drawn, Draw::mixed>(v, master, words);
  if (param) keep<false, Draw::low>(load_two(master), param, nullptr);
}
template <typename M, typename T>
HWY_INLINE void keep_each_master(const Two& v, M* master, T* param, const uint32_t* words) {
  keep_each<Draw::mixed>(v, master, words);
  if (param) keep_each<Draw::low>(load_two(master), param, nullptr);
}

// Master and states of lanes() elements; an optimizer of one state leaves `second` as it is.
struct Elements {
  Vec p, first, second;
};

// The operands of an update from one element on.
template <typename G, typename M, typename S, typename T, int n>
struct Place {
  const G* grad;
  M* master;
  S *first, *second;
  T* param;  // null: the master

  HWY_INLINE Place at(int64_t e) const {
    return {grad + e, master + e, first + e, n == 2 ? second + e : nullptr, param ? param + e : nullptr};
  }
  HWY_INLINE void fetch_ahead() const {
    const int64_t count = pair_lanes();
    fetch(grad, count);
    fetch(master, count);
    fetch(first, count);
    if constexpr (n == 2) fetch(second, count);
    if (param) fetch(param, count);
  }
  // pair_lanes() elements.
  template <bool drawn, typename Step>
  HWY_INLINE void renew(const Step& step, const uint32_t* words) const {
    const Two g = load_two(grad), p = load_two(master), s = load_two(first);
    Two t{hn::Zero(Lanes()), hn::Zero(Lanes())};
    if constexpr (n == 2) t = load_two(second);
    const Elements a = update(step, g.a, {p.a, s.a, t.a}), b = update(step, g.b, {p.b, s.b, t.b});
    const Two next_p{a.p, b.p}, next_s{a.first, b.first}, next_t{a.second, b.second};
    Vec sum = watch<S>(next_s);
    if constexpr (n == 2) sum = watch<S>(next_t, sum);
    sum = watch<MasterWatched<M, T>>(next_p, sum);
    if (HWY_UNLIKELY(!is_finite(sum))) {
      keep_each<Draw::low>(next_s, first, words);
      if constexpr (n == 2) keep_each<Draw::high>(next_t, second, words);
      return keep_each_master(next_p, master, param, words);
    }
    keep<drawn, Draw::low>(next_s, first, words);
    if constexpr (n == 2) keep<drawn, Draw::high>(next_t, second, words);
    keep_master<drawn>(next_p, master, param, words);
  }
  // Fewer.
  template <bool drawn, typename Step>
  HWY_INLINE void renew_part(const Step& step, const uint32_t* words, int64_t count) const {
    constexpr int64_t kMost = 2 * HWY_MAX_BYTES / sizeof(float);
    G g[kMost] = {};
    M m[kMost] = {};
    S s[kMost] = {}, t[kMost] = {};
    T p[kMost] = {};
    std::copy_n(grad, count, g);
    std::copy_n(master, count, m);
    std::copy_n(first, count, s);
    if constexpr (n == 2) std::copy_n(second, count, t);
    const Place whole{g, m, s, n == 2 ? t : nullptr, param ? p : nullptr};
    whole.template renew<drawn>(step, words);
    std::copy_n(m, count, master);
    std::copy_n(s, count, first);
    if constexpr (n == 2) std::copy_n(t, count, second);
    if (param) std::copy_n(p, count, param);
  }
};

// `update(step, grad, elements)` makes the next elements, where Step(c) holds the constants and
// Step::kStates, 1 or 2, says how many states there are. in: grad of type G; out: master of type M, states of
// type S, param of type T, which may be the master.
template <bool drawn, typename G, typename M, typename S, typename T, typename Step>
void update_elements(const KernelContext& c, const Rounding& rounding) {
  constexpr int n = Step::kStates;
  const bool own = c.out[0].data == c.out[n + 1].data;
  const Place<G, M, S, T, n> all{c.in[0].as<G>(), c.out[0].as<M>(), c.out[1].as<S>(),
                                 n == 2 ? c.out[2].as<S>() : nullptr, own ? nullptr : c.out[n + 1].as<T>()};
  const Step constants(c);
  for_blocks(c.team, c.in[0].numel(), ds::cpu::kBlock, [&](int64_t first, int64_t last) HWY_ATTR {
    const Step step = constants;
    const Place<G, M, S, T, n> place = all;
    BlockWords words;
    for (int64_t begin = first, end; begin < last; begin = end) {
      const uint32_t* word = nullptr;
      end = last;
      if constexpr (drawn) {
        const int64_t drawn_at = rounding.first + begin, inside = drawn_at % kDrawn;
        end = std::min(last, begin + kDrawn - inside);
        words.renew(rounding, drawn_at / kDrawn);
        word = words.get() + inside - begin;
      }
      const int64_t width = pair_lanes();
      int64_t e = begin;
      for (; e + width <= end; e += width) {
        place.at(e).fetch_ahead();
        place.at(e).template renew<drawn>(step, drawn ? word + e : nullptr);
      }
      if (e < end) place.at(e).template renew_part<drawn>(step, drawn ? word + e : nullptr, end - e);
    }
  });
}

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
          rounding.on ? update_elements<true, G, M, S, T, Step>(c, rounding)
                      : update_elements<false, G, M, S, T, Step>(c, rounding);
        });
      });
    });
  });
}

}  // namespace ds::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
