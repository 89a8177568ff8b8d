// AdamW whose moments are stored as codes, a block of 256 at a time, bit-identical to the
// reference. A first pass decodes the moments of a block, updates them and the master, leaves the
// new moments in the first-level cache, and tracks the largest magnitude in each vector lane. A
// second pass encodes the moments with the block's scale. Decoding and encoding are shifts,
// additions and comparisons of integers. A code fits into the upper half of an f32, so a vector of
// 16-bit halves holds twice as many elements as one of f32. The scale is known only after all lanes
// of the block have been compared, so the next block is updated before this one is encoded, which
// hides the latency.
#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/adamw_codes.cpp"
#include <hwy/foreach_target.h>

#include "core/program/state_codes.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/philox-inl.h"
#include "kernels/cpu/simd-inl.h"
#include "kernels/cpu/update-inl.h"
#include "kernels/formulas/adam_step.h"
#include "kernels/formulas/rounding.h"
#include "kernels/formulas/skipped.h"

HWY_BEFORE_NAMESPACE();
namespace ds::cpu::HWY_NAMESPACE {

// Blocks with this scale or a larger one may contain an infinity, a NaN or a number that rounding
// could make infinite.
constexpr uint8_t kSpecial = 254;

// Encodes a block one element at a time, rounded stochastically with `words` or, if that is null,
// to nearest.
HWY_NOINLINE void encode_each(const float* in, StateCodes kind, uint8_t scale,
                              const PartWords* words, uint8_t* codes) {
  const StateScale s(kind, scale);
  for (int64_t e = 0; e < kStateBlock; ++e) {
    uint32_t drawn = kToNearest;
    if (words)
      drawn =
          kind == StateCodes::with_sign ? mean_bits(words->word(e)) : square_bits(words->word(e));
    codes[e] = encode_state(in[e], kind, s, drawn);
  }
}

// Decoding and encoding in vectors. Blocks that are encoded have scales below kSpecial, so no code
// exceeds the largest valid one and none has to be clamped to it.

#if HWY_TARGET == HWY_SCALAR
template <StateCodes kind>
class Decoder {
 public:
  explicit Decoder(uint8_t scale) : scale_(kind, scale) {}
  Two two(const uint8_t* codes) const { return {one(codes[0]), one(codes[1])}; }

 private:
  Vec one(uint8_t code) const { return hn::Set(Lanes(), decode_state(code, kind, scale_)); }
  StateScale scale_;
};
// If vectors have one element, encode_each() encodes all blocks, and the functions declared below
// are never called.
constexpr bool kInVectors = false;
template <bool drawn>
void encode_block(const float* m, const float* v, uint8_t m_scale, uint8_t v_scale,
                  const PartWords& words, uint8_t* m_codes, uint8_t* v_codes);
template <bool drawn>
bool keep_halves(const Two& v, const PartWords& words, int64_t e, bf16* to);
#else
constexpr bool kInVectors = true;
// The number of bits in the upper half of an f32 that are below the bits of a code.
constexpr int kBelow = kStateShift - 16;
// Returns the offset that turns a code of this scale into the upper bits of its f32 when added.
HWY_INLINE U16 offset_of(StateCodes kind, uint8_t scale) {
  return hn::Set(Shorts(), static_cast<uint16_t>(StateScale(kind, scale).offset));
}

// Decodes the codes of one block, a pair of vectors at a time. The upper halves of both f32 vectors
// are computed together in one vector of 16-bit halves, and interleaving them with zeros widens
// them. Because interleaving works within 16-byte parts of a vector, apart() first moves the codes
// so that the results are in order.
template <StateCodes kind>
class Decoder {
 public:
  HWY_INLINE explicit Decoder(uint8_t scale) : offset_(offset_of(kind, scale)) {}
  HWY_INLINE Two two(const uint8_t* codes) const {
    const Lanes d;
    const Shorts h;
    const U16 zero = hn::Zero(h), bits = upper(apart(hn::LoadU(Bytes(), codes)));
    return {hn::BitCast(d, hn::InterleaveLower(h, zero, bits)),
            hn::BitCast(d, hn::InterleaveUpper(h, zero, bits))};
  }

 private:
  using Bytes = hn::Rebind<uint8_t, Shorts>;
  using Codes = hn::Vec<Bytes>;

  static HWY_INLINE Codes apart(Codes codes) {
    // On these targets a vector is a single part of 16 bytes.
    if constexpr (HWY_TARGET > HWY_AVX2) return codes;
    alignas(32) static constexpr uint32_t kOrders[2][8] = {{0, 2, 1, 3}, {0, 4, 1, 5, 2, 6, 3, 7}};
    const hn::Repartition<uint32_t, Bytes> fours;
    const auto order = hn::SetTableIndices(fours, kOrders[pair_lanes() == 32 ? 1 : 0]);
    return hn::BitCast(Bytes(), hn::TableLookupLanes(hn::BitCast(fours, codes), order));
  }
  // Returns the upper halves of the decoded f32 values. Code 0 is zero.
  HWY_INLINE U16 upper(Codes codes) const {
    const Shorts h;
    const U16 zero = hn::Zero(h);
    if constexpr (kind == StateCodes::squares) {
      const U16 code = hn::PromoteTo(h, codes);
      return hn::IfThenElseZero(hn::Ne(code, zero), hn::ShiftLeft<kBelow>(hn::Add(code, offset_)));
    }
    const hn::RebindToSigned<Bytes> signed_bytes;
    const hn::RebindToSigned<Shorts> signed_halves;
    const U16 code = hn::BitCast(h, hn::PromoteTo(signed_halves, hn::BitCast(signed_bytes, codes)));
    const U16 size = hn::And(code, hn::Set(h, uint16_t{0x7f}));
    const U16 both = hn::OrAnd(hn::ShiftLeft<kBelow>(hn::Add(size, offset_)), code,
                               hn::Set(h, uint16_t{0x8000}));
    return hn::IfThenElseZero(hn::Ne(size, zero), both);
  }

  U16 offset_;
};

// Returns the lower halves of two vectors of words in one vector.
HWY_INLINE U16 lower_halves(U32 a, U32 b) {
  const Shorts d;
  return hn::ConcatEven(d, hn::BitCast(d, b), hn::BitCast(d, a));
}
// Stores the lower bytes of two vectors of halves.
HWY_INLINE void store_codes(U16 a, U16 b, uint8_t* codes) {
  const hn::Repartition<uint8_t, Words> d;
  hn::StoreU(hn::ConcatEven(d, hn::BitCast(d, b), hn::BitCast(d, a)), d, codes);
}

// Returns the upper halves of a pair of vectors after adding, below the last bit of a code, either
// random bits or kToNearest. kToNearest has no bits in the lower halves, which therefore produce no
// carry, so it is added to the upper halves only.
template <bool drawn>
HWY_INLINE U16 rounded_halves(const Two& x, const TwoWords& draws) {
  const TwoWords bits = bits_of(x);
  if constexpr (drawn)
    return upper_halves<false>({hn::Add(bits.a, draws.a), hn::Add(bits.b, draws.b)});
  return hn::Add(upper_halves<false>(bits),
                 hn::Set(Shorts(), static_cast<uint16_t>(kToNearest >> 16)));
}

// Return the codes of a pair of vectors of means, or of means of squares. Rounding does not change
// the sign of a mean.
template <bool drawn>
HWY_INLINE U16 mean_codes(const Two& x, U16 offset, const TwoWords& draws) {
  const Shorts h;
  const U16 top = rounded_halves<drawn>(x, draws);
  const U16 size = hn::ShiftRight<kBelow>(hn::And(top, hn::Set(h, uint16_t{0x7fff})));
  const U16 sign = hn::Set(h, uint16_t{0x80});
  return hn::OrAnd(hn::SaturatedSub(size, offset), hn::ShiftRight<8>(top), sign);
}
template <bool drawn>
HWY_INLINE U16 square_codes(const Two& x, U16 offset, const TwoWords& draws) {
  const Words d;
  const TwoWords bits = bits_of(x);
  const U32 one = hn::Set(d, 1);
  const U16 top = hn::ShiftRight<kBelow>(rounded_halves<drawn>(x, draws));
  // Only zero has code 0: a small square gets code 1.
  const U16 least = lower_halves(hn::Min(bits.a, one), hn::Min(bits.b, one));
  return hn::Max(hn::SaturatedSub(top, offset), least);
}

// Encodes a block whose scales are below kSpecial.
template <bool drawn>
HWY_INLINE void encode_block(const float* m, const float* v, uint8_t m_scale, uint8_t v_scale,
                             const PartWords& words, uint8_t* m_codes, uint8_t* v_codes) {
  const Words d;
  const U16 m_offset = offset_of(StateCodes::with_sign, m_scale),
            v_offset = offset_of(StateCodes::squares, v_scale);
  const U32 low = hn::Set(d, 0xfffffu);
  struct Codes {
    U16 mean, square;
  };
  const auto codes_from = [&](int64_t e) HWY_ATTR __attribute__((always_inline)) {
    TwoWords mean = no_words(), square = mean;
    if constexpr (drawn) {
      const TwoWords own = words.pair(e);
      mean = {hn::And(own.a, low), hn::And(own.b, low)};
      square = {hn::ShiftRight<12>(own.a), hn::ShiftRight<12>(own.b)};
    }
    return Codes{mean_codes<drawn>(load_two<false>(m + e), m_offset, mean),
                 square_codes<drawn>(load_two<false>(v + e), v_offset, square)};
  };
  for (int64_t e = 0; e < kStateBlock; e += 2 * pair_lanes()) {
    const Codes first = codes_from(e), second = codes_from(e + pair_lanes());
    store_codes(first.mean, second.mean, m_codes + e);
    store_codes(first.square, second.square, v_codes + e);
  }
}

// Stores a pair of vectors as bf16 masters, for a block whose moments are finite. An element that
// is not finite then comes from the master or from a division by zero, and its bits below the last
// bit of a bf16 are 0. So adding random bits rounds correctly unless it makes a finite element
// infinite. If `drawn` and any result is infinite or NaN, returns false and stores nothing.
template <bool drawn>
HWY_INLINE bool keep_halves(const Two& v, const PartWords& words, int64_t e, bf16* to) {
  const Words d;
  const Shorts h;
  if constexpr (!drawn) {
    Keeping<false, false>::keep<Draw::mixed>(v, to, no_words());
    return true;
  }
  const TwoWords own = words.mixed(e);
  const auto sum = [&](Vec x, U32 word)
                       HWY_ATTR { return hn::Add(hn::BitCast(d, x), hn::ShiftRight<16>(word)); };
  const U16 kept = upper_halves<false>({sum(v.a, own.a), sum(v.b, own.b)}),
            exponent = hn::Set(h, uint16_t{0x7f80});
  if (HWY_UNLIKELY(!hn::AllFalse(h, hn::Eq(hn::And(kept, exponent), exponent)))) return false;
  hn::StoreU(kept, h, reinterpret_cast<uint16_t*>(to));
  return true;
}
#endif

HWY_INLINE uint32_t largest_of(U32 bits) { return hn::GetLane(hn::MaxOfLanes(Words(), bits)); }

// The moments of a block before they are encoded.
struct NextMoments {
  HWY_ALIGN float m[kStateBlock], v[kStateBlock];
};

// The operands of one block. If `drawn`, codes and bf16 masters are rounded stochastically.
template <bool drawn, typename G, typename M, typename T>
struct CodedBlock {
  const G* grad;
  M* master;
  uint8_t *m_codes, *m_scale, *v_codes, *v_scale;
  // Null if the parameter is the master itself.
  T* param;

  // Updates masters, parameters and scales, and writes the next moments to `out`. The codes stay as
  // they are.
  HWY_INLINE void renew(const AdamStep& s, const PartWords& words, NextMoments& out) const {
    s.penalty != 0 ? renew_moments<true>(s, out) : renew_moments<false>(s, out);
    const auto next = [&](int64_t e) HWY_ATTR __attribute__((always_inline)) {
      const Lanes d;
      const Vec p = hn::Mul(load(master + e), hn::Set(d, s.keep));
      const Vec root =
          hn::Add(hn::Sqrt(hn::Mul(load(out.v + e), hn::Set(d, s.correction2))), hn::Set(d, s.eps));
      return hn::Sub(p, hn::Div(hn::Mul(hn::Set(d, s.rate), load(out.m + e)), root));
    };
    const bool finite = *m_scale != 255 && *v_scale != 255;
    for (int64_t e = 0; e < kStateBlock; e += pair_lanes())
      keep_masters({next(e), next(e + lanes())}, finite, words, e);
  }

  // Encodes the block's moments with the scales that renew() has set. Special scales take the slow
  // path.
  HWY_INLINE void encode(const NextMoments& in, const PartWords& words) const {
    if (!kInVectors || *m_scale >= kSpecial || *v_scale >= kSpecial) {
      const PartWords* const own = drawn ? &words : nullptr;
      encode_each(in.m, StateCodes::with_sign, *m_scale, own, m_codes);
      return encode_each(in.v, StateCodes::squares, *v_scale, own, v_codes);
    }
    encode_block<drawn>(in.m, in.v, *m_scale, *v_scale, words, m_codes, v_codes);
  }

 private:
  // Computes the next moments and the scales of their codes.
  template <bool penalized>
  HWY_INLINE void renew_moments(const AdamStep& s, NextMoments& out) const {
    const Lanes d;
    const Words w;
    const Decoder<StateCodes::with_sign> means(*m_scale);
    const Decoder<StateCodes::squares> squares(*v_scale);
    U32 m_most = hn::Zero(w), v_most = hn::Zero(w);
    const auto renewed = [&](int64_t e, Vec mean, Vec square) HWY_ATTR
        __attribute__((always_inline)) {
      Vec g = hn::Mul(load(grad + e), hn::Set(d, s.grad_scale));
      if constexpr (penalized) {
        const Vec p = hn::Mul(load(master + e), hn::Set(d, s.keep));
        g = hn::Add(g, hn::Mul(hn::Set(d, s.penalty), p));
      }
      const Vec m =
          hn::Add(hn::Mul(hn::Set(d, s.beta1), mean), hn::Mul(hn::Set(d, s.one_beta1), g));
      const Vec v = hn::Add(hn::Mul(hn::Set(d, s.beta2), square),
                            hn::Mul(hn::Set(d, s.one_beta2), hn::Mul(g, g)));
      store(m, out.m + e);
      store(v, out.v + e);
      m_most = hn::Max(m_most, hn::And(hn::BitCast(w, m), hn::Set(w, 0x7fffffffu)));
      // Squares have no sign bit to clear. A NaN may have one, but it still compares as the
      // largest.
      v_most = hn::Max(v_most, hn::BitCast(w, v));
    };
    for (int64_t e = 0; e < kStateBlock; e += pair_lanes()) {
      if (e % kLine == 0) fetch_ahead(e);
      const Two mean = means.two(m_codes + e), square = squares.two(v_codes + e);
      // The largest magnitudes are tracked as integers: without the sign, the bits of f32 have the
      // order of the numbers, and a NaN is above all of them.
      renewed(e, mean.a, square.a);
      renewed(e + lanes(), mean.b, square.b);
    }
    *m_scale = state_scale(largest_of(m_most));
    *v_scale = state_scale(largest_of(v_most));
  }

  // Stores masters and parameters of a pair of vectors, with vector instructions if all are finite,
  // otherwise one by one.
  HWY_INLINE void keep_masters(const Two& v, bool finite, const PartWords& words, int64_t e) const {
    T* const to = param ? param + e : nullptr;
    if constexpr (std::is_same_v<M, bf16>) {
      if (HWY_LIKELY(kInVectors && finite && keep_halves<drawn>(v, words, e, master + e))) {
        return keep_param(master + e, to);
      }
    } else if (HWY_LIKELY(is_finite(watch<T>(v, watch_none())))) {
      return Keeping<false, false>::keep_master(v, master + e, to, no_words());
    }
    Keeping<false, drawn>::keep_each_master(v, master + e, to, drawn ? words.mixed(e) : no_words());
  }

  // The number of codes in a cache line.
  static constexpr int64_t kLine = 64;

  HWY_INLINE void fetch_ahead(int64_t e) const {
    fetch(grad + e, kLine);
    fetch(master + e, kLine);
    fetch(m_codes + e, kLine);
    fetch(v_codes + e, kLine);
    if (param) fetch(param + e, kLine);
  }
};

template <bool drawn, typename G, typename M, typename T>
void renew_blocks(const KernelContext& c) {
  using Block = CodedBlock<drawn, G, M, T>;
  const bool own = c.out[0].data == c.out[5].data;
  const Block all{c.in[0].as<G>(),
                  c.out[0].as<M>(),
                  c.out[1].as<uint8_t>(),
                  c.out[2].as<uint8_t>(),
                  c.out[3].as<uint8_t>(),
                  c.out[4].as<uint8_t>(),
                  own ? nullptr : c.out[5].as<T>()};
  const AdamStep constants(c);
  const Rounding rounding(c);
  constexpr int64_t kTask = ds::cpu::kBlock / kStateBlock;
  for_blocks(c.team, c.out[2].numel(), kTask, [&](int64_t begin, int64_t end) HWY_ATTR {
    const AdamStep step = constants;
    const Block a = all;
    const auto block = [&](int64_t b) HWY_ATTR {
      const int64_t e = b * kStateBlock;
      return Block{a.grad + e,
                   a.master + e,
                   a.m_codes + e,
                   a.m_scale + b,
                   a.v_codes + e,
                   a.v_scale + b,
                   a.param ? a.param + e : nullptr};
    };
    // The random words of two blocks of kDrawn elements. Each of them covers two blocks of codes.
    HWY_ALIGN uint32_t drawn_words[2][kBlockWords];
    NextMoments next[2];
    const auto words_of = [&](int64_t b) HWY_ATTR {
      const int64_t e = rounding.first + b * kStateBlock;
      return PartWords(drawn_words[e / kDrawn % 2], e % kDrawn);
    };
    // A pipeline of two stages: block b is updated, then block b - 1 is encoded from the moments in
    // the other NextMoments.
    for (int64_t b = begin; b <= end; ++b) {
      const int64_t e = rounding.first + b * kStateBlock;
      if (drawn && b < end && (b == begin || e % kDrawn == 0))
        draw_words<false>(rounding, e / kDrawn, drawn_words[e / kDrawn % 2]);
      if (b < end) block(b).renew(step, words_of(b), next[b % 2]);
      if (b > begin) block(b - 1).encode(next[1 - b % 2], words_of(b - 1));
    }
  });
}

void adamw_codes(const KernelContext& c) {
  if (c.scalars.skip != 0) return skip_update(c);
  const bool drawn = Rounding(c).on;
  by_type_among<float, bf16>("cpu", c.in[0].dtype, [&](auto g) {
    by_type_among<float, bf16>("cpu", c.out[0].dtype, [&](auto m) {
      by_type(c.out[5].dtype, [&](auto t) {
        using G = decltype(g);
        using M = decltype(m);
        using T = decltype(t);
        drawn ? renew_blocks<true, G, M, T>(c) : renew_blocks<false, G, M, T>(c);
      });
    });
  });
}

void add_adamw_codes(KernelRegistry& registry) { add_kernel(registry, "adamw_codes", adamw_codes); }

}  // namespace ds::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
