// AdamW whose moments are codes, a block of 256 at a time: one pass decodes, renews moments and master and
// keeps the moments in the first cache with the largest of each lane; a second pass, with the block's scale,
// encodes. Both are shifts, sums and comparisons of integers.
#include <algorithm>
#include <cstdint>

#include "kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/adamw_codes.cpp"
#include <hwy/foreach_target.h>

#include "core/program/state_codes.h"
#include "kernels/adamw_codes.h"
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
  const U32 both = hn::Or(bits, hn::And(hn::ShiftLeft<24>(code), hn::Set(d, 0x80000000u)));
  return hn::BitCast(Lanes(), hn::IfThenZeroElse(hn::Eq(size, hn::Zero(d)), both));
}

HWY_INLINE Vec decode_square(const uint8_t* codes, U32 offset) {
  const Words d;
  const U32 code = hn::PromoteTo(d, hn::LoadU(Bytes(), codes));
  const U32 bits = hn::ShiftLeft<kStateShift>(hn::Add(code, offset));
  return hn::BitCast(Lanes(), hn::IfThenZeroElse(hn::Eq(code, hn::Zero(d)), bits));
}

HWY_INLINE void store_codes(hn::Vec<Ints> code, uint8_t* codes) {
  hn::StoreU(hn::TruncateTo(Bytes(), hn::BitCast(Words(), code)), Bytes(), codes);
}

// Of a block with a scale below kSpecial: no code is above the top.
HWY_INLINE void encode_mean(Vec x, hn::Vec<Ints> offset, U32 drawn, uint8_t* codes) {
  const Words d;
  const Ints ints;
  const U32 bits = hn::BitCast(d, x), size = hn::And(bits, hn::Set(d, 0x7fffffffu));
  auto code = hn::Sub(hn::BitCast(ints, hn::ShiftRight<kStateShift>(hn::Add(size, drawn))), offset);
  code = hn::Max(code, hn::Zero(ints));
  const auto sign = hn::BitCast(ints, hn::ShiftRight<24>(bits));
  store_codes(hn::Or(code, hn::And(sign, hn::Set(ints, 0x80))), codes);
}

HWY_INLINE void encode_square(Vec x, hn::Vec<Ints> offset, U32 drawn, uint8_t* codes) {
  const Words d;
  const Ints ints;
  const U32 bits = hn::BitCast(d, x);
  auto code = hn::Sub(hn::BitCast(ints, hn::ShiftRight<kStateShift>(hn::Add(bits, drawn))), offset);
  store_codes(hn::Max(code, hn::Min(hn::BitCast(ints, bits), hn::Set(ints, 1))), codes);
}

// Scales of blocks with an infinity, a NaN or what could become one.
constexpr uint8_t kSpecial = 254;

HWY_NOINLINE void encode_special(const float* in, StateCodes kind, uint8_t scale, const uint32_t* words,
                                 uint8_t* codes) {
  const StateScale s(kind, scale);
  for (int64_t e = 0; e < kStateBlock; ++e) {
    uint32_t drawn = kToNearest;
    if (words) drawn = kind == StateCodes::with_sign ? mean_bits(words[e]) : square_bits(words[e]);
    codes[e] = encode_state(in[e], kind, s, drawn);
  }
}

HWY_INLINE uint32_t largest_of(U32 bits) { return hn::GetLane(hn::MaxOfLanes(Words(), bits)); }

// The words of the elements of one block.
class BlockWords {
 public:
  HWY_INLINE const uint32_t* of(const Rounding& rounding, int64_t begin) {
    if (!rounding.on) return nullptr;
    const Words d;
    const auto first = static_cast<uint64_t>(rounding.first + begin) / kStateBlock * (kBlockWords / 4);
    for (int64_t at = 0; at < kBlockWords; at += 4 * lanes())
      draw(rounding.stream, first + static_cast<uint64_t>(at / 4), words_ + at);
    for (int64_t quarter = 1; quarter < 4; ++quarter) {
      for (int64_t e = 0; e < kBlockWords; e += lanes()) {
        const U32 product = hn::Mul(hn::LoadU(d, words_ + e), hn::Set(d, kQuarters[quarter]));
        hn::StoreU(product, d, words_ + quarter * kBlockWords + e);
      }
    }
    return words_;
  }

 private:
  HWY_ALIGN uint32_t words_[kStateBlock];
};

// The operands of one block.
template <typename M, typename T>
struct CodedBlock {
  const float* grad;
  M* master;
  uint8_t *m_codes, *m_scale, *v_codes, *v_scale;
  T* param;  // null: the master

  HWY_INLINE void renew(const AdamCodesStep& s, const uint32_t* words) const {
    HWY_ALIGN float m_next[kStateBlock], v_next[kStateBlock];
    renew_values(s, words, m_next, v_next);
    if (*m_scale >= kSpecial || *v_scale >= kSpecial) {
      encode_special(m_next, StateCodes::with_sign, *m_scale, words, m_codes);
      return encode_special(v_next, StateCodes::squares, *v_scale, words, v_codes);
    }
    const Words w;
    const Ints ints;
    const auto m_offset = hn::Set(ints, StateScale(StateCodes::with_sign, *m_scale).offset),
               v_offset = hn::Set(ints, StateScale(StateCodes::squares, *v_scale).offset);
    U32 m_drawn = hn::Set(w, kToNearest), v_drawn = m_drawn;
    for (int64_t e = 0; e < kStateBlock; e += lanes()) {
      if (words) {
        const U32 word = hn::Load(w, words + e);
        m_drawn = hn::And(word, hn::Set(w, 0xfffffu));
        v_drawn = hn::ShiftRight<12>(word);
      }
      encode_mean(load(m_next + e), m_offset, m_drawn, m_codes + e);
      encode_square(load(v_next + e), v_offset, v_drawn, v_codes + e);
    }
  }

 private:
  // All but the codes, which come back as what they will be made of.
  HWY_INLINE void renew_values(const AdamCodesStep& s, const uint32_t* words, float* m_next,
                               float* v_next) const {
    const Lanes d;
    const Words w;
    const auto offset = [&](StateCodes kind, uint8_t scale) HWY_ATTR {
      return hn::Set(w, static_cast<uint32_t>(StateScale(kind, scale).offset));
    };
    const U32 m_offset = offset(StateCodes::with_sign, *m_scale),
              v_offset = offset(StateCodes::squares, *v_scale);
    U32 m_most = hn::Zero(w), v_most = hn::Zero(w);
    for (int64_t e = 0; e < kStateBlock; e += lanes()) {
      Vec p = hn::Mul(load(master + e), hn::Set(d, s.decay));
      Vec g = hn::Add(hn::Mul(load(grad + e), hn::Set(d, s.grad_scale)), hn::Mul(hn::Set(d, s.penalty), p));
      Vec m = hn::Add(hn::Mul(hn::Set(d, s.beta1), decode_mean(m_codes + e, m_offset)),
                      hn::Mul(hn::Set(d, s.one_beta1), g));
      Vec v = hn::Add(hn::Mul(hn::Set(d, s.beta2), decode_square(v_codes + e, v_offset)),
                      hn::Mul(hn::Set(d, s.one_beta2), hn::Mul(g, g)));
      Vec root = hn::Add(hn::Sqrt(hn::Mul(v, hn::Set(d, s.correction2))), hn::Set(d, s.eps));
      p = hn::Sub(p, hn::Div(hn::Mul(hn::Set(d, s.rate), m), root));
      keep(p, master + e, words ? words + e : nullptr, Draw::mixed);
      if (param) store(load(master + e), param + e);
      store(m, m_next + e);
      store(v, v_next + e);
      m_most = hn::Max(m_most, hn::And(hn::BitCast(w, m), hn::Set(w, 0x7fffffffu)));
      v_most = hn::Max(v_most, hn::BitCast(w, v));  // a NaN may have a sign: it is the largest all the same
    }
    *m_scale = state_scale(largest_of(m_most));
    *v_scale = state_scale(largest_of(v_most));
  }
};

template <typename M, typename T>
void renew_blocks(const KernelContext& c) {
  const bool own = c.out[0].data == c.out[5].data;
  const CodedBlock<M, T> all{
      c.in[0].as<float>(),    c.out[0].as<M>(),       c.out[1].as<uint8_t>(),          c.out[2].as<uint8_t>(),
      c.out[3].as<uint8_t>(), c.out[4].as<uint8_t>(), own ? nullptr : c.out[5].as<T>()};
  const AdamCodesStep constants(c);
  const Rounding rounding(c);
  constexpr int64_t kTask = ds::cpu::kBlock / kStateBlock;
  for_blocks(c.team, c.out[2].numel(), kTask, [&](int64_t begin, int64_t end) HWY_ATTR {
    const AdamCodesStep step = constants;
    const CodedBlock<M, T> a = all;
    BlockWords words;
    for (int64_t b = begin; b < end; ++b) {
      const int64_t e = b * kStateBlock;
      const CodedBlock<M, T> block{a.grad + e,
                                   a.master + e,
                                   a.m_codes + e,
                                   a.m_scale + b,
                                   a.v_codes + e,
                                   a.v_scale + b,
                                   a.param ? a.param + e : nullptr};
      block.renew(step, words.of(rounding, e));
    }
  });
}

void adamw_codes(const KernelContext& c) {
  if (c.scalars.skip != 0) return skip_update(c);
  by_type_among<float, bf16>("cpu", c.out[0].dtype, [&](auto m) {
    by_type(c.out[5].dtype, [&](auto t) { renew_blocks<decltype(m), decltype(t)>(c); });
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
