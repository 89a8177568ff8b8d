// AdamW whose moments are codes, a block of 256 at a time: one pass decodes, renews moments and master and
// keeps the moments in the first cache with the largest of each lane; a second pass, with the block's scale,
// encodes. Both are shifts, sums and comparisons of integers; a code is in the upper half of an f32, so that
// encoding takes twice as many elements in a vector. The scale is known late, when all lanes of a block have
// been compared: the next block is renewed before the codes of this one are made.
#include <algorithm>
#include <cstdint>

#include "kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/adamw_codes.cpp"
#include <hwy/foreach_target.h>

#include "core/program/state_codes.h"
#include "kernels/adam_step.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/philox-inl.h"
#include "kernels/cpu/simd-inl.h"
#include "kernels/cpu/update-inl.h"
#include "kernels/rounding.h"
#include "kernels/skipped.h"

HWY_BEFORE_NAMESPACE();
namespace ds::cpu::HWY_NAMESPACE {

using Bytes = hn::Rebind<uint8_t, Lanes>;  // as many as Lanes has

HWY_INLINE Vec decode_mean(const uint8_t* codes, U32 offset) {
  const Words d;
  const U32 code = hn::PromoteTo(d, hn::LoadU(Bytes(), codes)), size = hn::And(code, hn::Set(d, 0x7fu));
  const U32 bits = hn::ShiftLeft<kStateShift>(hn::Add(size, offset));
  const U32 both = hn::OrAnd(bits, hn::ShiftLeft<24>(code), hn::Set(d, 0x80000000u));
  return hn::BitCast(Lanes(), hn::IfThenZeroElse(hn::Eq(size, hn::Zero(d)), both));
}

HWY_INLINE Vec decode_square(const uint8_t* codes, U32 offset) {
  const Words d;
  const U32 code = hn::PromoteTo(d, hn::LoadU(Bytes(), codes));
  const U32 bits = hn::ShiftLeft<kStateShift>(hn::Add(code, offset));
  return hn::BitCast(Lanes(), hn::IfThenZeroElse(hn::Eq(code, hn::Zero(d)), bits));
}

// Scales of blocks with an infinity, a NaN or what could become one.
constexpr uint8_t kSpecial = 254;

// One element at a time.
HWY_NOINLINE void encode_each(const float* in, StateCodes kind, uint8_t scale, const uint32_t* words,
                              uint8_t* codes) {
  const StateScale s(kind, scale);
  for (int64_t e = 0; e < kStateBlock; ++e) {
    uint32_t drawn = kToNearest;
    if (words) drawn = kind == StateCodes::with_sign ? mean_bits(words[e]) : square_bits(words[e]);
    codes[e] = encode_state(in[e], kind, s, drawn);
  }
}

// Vectors of a block with scales below kSpecial, of which no code is above the top.
#if HWY_TARGET == HWY_SCALAR
constexpr bool kEncodesVectors = false;  // no definitions: nothing may use them
template <StateCodes kind, bool drawn>
void encode_block(const float* x, uint8_t scale, const uint32_t* words, uint8_t* codes);
#else
constexpr bool kEncodesVectors = true;
using Shorts = hn::Repartition<uint16_t, Words>;
using U16 = hn::Vec<Shorts>;

HWY_INLINE U16 offset_of(StateCodes kind, uint8_t scale) {
  return hn::Set(Shorts(), static_cast<uint16_t>(StateScale(kind, scale).offset));
}
HWY_INLINE U16 upper_halves(U32 a, U32 b) {
  const Shorts d;
  return hn::ConcatOdd(d, hn::BitCast(d, b), hn::BitCast(d, a));
}
HWY_INLINE U16 lower_halves(U32 a, U32 b) {
  const Shorts d;
  return hn::ConcatEven(d, hn::BitCast(d, b), hn::BitCast(d, a));
}
HWY_INLINE void store_codes(U16 a, U16 b, uint8_t* codes) {
  const hn::Repartition<uint8_t, Words> d;
  hn::StoreU(hn::ConcatEven(d, hn::BitCast(d, b), hn::BitCast(d, a)), d, codes);
}

template <bool drawn>
HWY_INLINE U16 mean_codes(const float* x, U16 offset, const uint32_t* words) {
  const Words d;
  const Shorts h;
  const auto sum = [&](int64_t e) HWY_ATTR {
    U32 r = hn::Set(d, kToNearest);
    if constexpr (drawn) r = hn::And(hn::Load(d, words + e), hn::Set(d, 0xfffffu));
    return hn::Add(hn::BitCast(d, load(x + e)), r);  // the sign stays
  };
  const U16 top = upper_halves(sum(0), sum(lanes()));
  const U16 size = hn::ShiftRight<kStateShift - 16>(hn::And(top, hn::Set(h, uint16_t{0x7fff})));
  const U16 sign = hn::Set(h, uint16_t{0x80});
  return hn::OrAnd(hn::SaturatedSub(size, offset), hn::ShiftRight<8>(top), sign);
}

template <bool drawn>
HWY_INLINE U16 square_codes(const float* x, U16 offset, const uint32_t* words) {
  const Words d;
  const auto bits = [&](int64_t e) HWY_ATTR { return hn::BitCast(d, load(x + e)); };
  const auto sum = [&](int64_t e) HWY_ATTR {
    U32 r = hn::Set(d, kToNearest);
    if constexpr (drawn) r = hn::ShiftRight<12>(hn::Load(d, words + e));
    return hn::Add(bits(e), r);
  };
  const auto some = [&](int64_t e) HWY_ATTR { return hn::Min(bits(e), hn::Set(d, 1)); };
  const U16 top = hn::ShiftRight<kStateShift - 16>(upper_halves(sum(0), sum(lanes())));
  return hn::Max(hn::SaturatedSub(top, offset), lower_halves(some(0), some(lanes())));
}

// The codes of a block.
template <StateCodes kind, bool drawn>
HWY_INLINE void encode_block(const float* x, uint8_t scale, const uint32_t* words, uint8_t* codes) {
  const U16 offset = offset_of(kind, scale);
  const auto codes_from = [&](int64_t e) HWY_ATTR __attribute__((always_inline)) {
    if constexpr (kind == StateCodes::with_sign) return mean_codes<drawn>(x + e, offset, words + e);
    return square_codes<drawn>(x + e, offset, words + e);
  };
  for (int64_t e = 0; e < kStateBlock; e += 2 * pair_lanes())
    store_codes(codes_from(e), codes_from(e + pair_lanes()), codes + e);
}
#endif

HWY_INLINE uint32_t largest_of(U32 bits) { return hn::GetLane(hn::MaxOfLanes(Words(), bits)); }

// What a block's codes will be made of.
struct NextMoments {
  HWY_ALIGN float m[kStateBlock], v[kStateBlock];
};

// The operands of one block.
template <bool drawn, typename G, typename M, typename T>
struct CodedBlock {
  const G* grad;
  M* master;
  uint8_t *m_codes, *m_scale, *v_codes, *v_scale;
  T* param;  // null: the master

  // All but the codes.
  HWY_INLINE void renew(const AdamStep& s, const uint32_t* words, NextMoments& out) const {
    const Words w;
    const auto offset = [&](StateCodes kind, uint8_t scale) HWY_ATTR {
      return hn::Set(w, static_cast<uint32_t>(StateScale(kind, scale).offset));
    };
    const U32 m_offset = offset(StateCodes::with_sign, *m_scale),
              v_offset = offset(StateCodes::squares, *v_scale);
    U32 m_most = hn::Zero(w), v_most = hn::Zero(w);
    for (int64_t e = 0; e < kStateBlock; e += lanes()) {
      const Lanes d;
      if (e % kLine == 0) fetch_ahead(e);
      const Vec p = hn::Mul(load(master + e), hn::Set(d, s.decay));
      const Vec g =
          hn::Add(hn::Mul(load(grad + e), hn::Set(d, s.grad_scale)), hn::Mul(hn::Set(d, s.penalty), p));
      const Vec m = hn::Add(hn::Mul(hn::Set(d, s.beta1), decode_mean(m_codes + e, m_offset)),
                            hn::Mul(hn::Set(d, s.one_beta1), g));
      const Vec v = hn::Add(hn::Mul(hn::Set(d, s.beta2), decode_square(v_codes + e, v_offset)),
                            hn::Mul(hn::Set(d, s.one_beta2), hn::Mul(g, g)));
      store(m, out.m + e);
      store(v, out.v + e);
      m_most = hn::Max(m_most, hn::And(hn::BitCast(w, m), hn::Set(w, 0x7fffffffu)));
      v_most = hn::Max(v_most, hn::BitCast(w, v));  // a NaN may have a sign: it is the largest all the same
    }
    const auto next = [&](int64_t e) HWY_ATTR __attribute__((always_inline)) {
      const Lanes d;
      const Vec p = hn::Mul(load(master + e), hn::Set(d, s.decay));
      const Vec root =
          hn::Add(hn::Sqrt(hn::Mul(load(out.v + e), hn::Set(d, s.correction2))), hn::Set(d, s.eps));
      return hn::Sub(p, hn::Div(hn::Mul(hn::Set(d, s.rate), load(out.m + e)), root));
    };
    for (int64_t e = 0; e < kStateBlock; e += pair_lanes()) {
      const Two two{next(e), next(e + lanes())};
      const uint32_t* own = drawn ? words + e : nullptr;
      T* const to = param ? param + e : nullptr;
      if (HWY_UNLIKELY(!is_finite(watch<MasterWatched<M, T>>(two))))
        keep_each_master(two, master + e, to, own);
      else
        keep_master<drawn>(two, master + e, to, own);
    }
    *m_scale = state_scale(largest_of(m_most));
    *v_scale = state_scale(largest_of(v_most));
  }

  HWY_INLINE void encode(const NextMoments& in, const uint32_t* words) const {
    if (!drawn) words = nullptr;
    if (!kEncodesVectors || *m_scale >= kSpecial || *v_scale >= kSpecial) {
      encode_each(in.m, StateCodes::with_sign, *m_scale, words, m_codes);
      return encode_each(in.v, StateCodes::squares, *v_scale, words, v_codes);
    }
    encode_block<StateCodes::with_sign, drawn>(in.m, *m_scale, words, m_codes);
    encode_block<StateCodes::squares, drawn>(in.v, *v_scale, words, v_codes);
  }

 private:
  static constexpr int64_t kLine = 64;  // codes of a cache line

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
  const Block all{
      c.in[0].as<G>(),        c.out[0].as<M>(),       c.out[1].as<uint8_t>(),          c.out[2].as<uint8_t>(),
      c.out[3].as<uint8_t>(), c.out[4].as<uint8_t>(), own ? nullptr : c.out[5].as<T>()};
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
    BlockWords words[2];  // a block of them is of two blocks of codes
    NextMoments next[2];
    const auto words_of = [&](int64_t b) HWY_ATTR {
      const int64_t e = rounding.first + b * kStateBlock;
      BlockWords& block = words[e / kDrawn % 2];
      if (drawn && (b == begin || e % kDrawn == 0)) block.renew(rounding, e / kDrawn);
      return block.get() + e % kDrawn;
    };
    const uint32_t* words_before = nullptr;
    for (int64_t b = begin; b <= end; ++b) {
      const uint32_t* own_words = b < end ? words_of(b) : nullptr;
      if (b < end) block(b).renew(step, own_words, next[b % 2]);
      if (b > begin) block(b - 1).encode(next[1 - b % 2], words_before);
      words_before = own_words;
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

}  // namespace ds::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ds::cpu {

HWY_EXPORT(adamw_codes);

void add_adamw_codes(KernelRegistry& registry) {
  add_kernel(registry, "adamw_codes", [](const KernelContext& c) { HWY_DYNAMIC_DISPATCH(adamw_codes)(c); });
}

}  // namespace ds::cpu
#endif  // HWY_ONCE
