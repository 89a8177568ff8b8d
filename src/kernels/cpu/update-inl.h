// Elementwise updates of optimizers, compiled once per instruction set.
#if defined(DS_KERNELS_CPU_UPDATE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef DS_KERNELS_CPU_UPDATE_INL_H_
#undef DS_KERNELS_CPU_UPDATE_INL_H_
#else
#define DS_KERNELS_CPU_UPDATE_INL_H_
#endif

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

// Master and states of lanes() elements; an optimizer of one state leaves `second` as it is.
struct Elements {
  Vec p, first, second;
};

constexpr int64_t kDrawn = 256;  // elements whose words are drawn together

// Words of a stretch of at most kDrawn elements; null where values are rounded to nearest.
class Words16 {
 public:
  HWY_INLINE const uint32_t* of(const Rounding& rounding, int64_t begin, int64_t count) {
    if (!rounding.on) return nullptr;
    int64_t first = rounding.first + begin, step = 4 * lanes(), skipped = first % step;
    for (int64_t at = 0; at < skipped + count; at += step)
      draw(rounding.stream, static_cast<uint64_t>((first - skipped + at) / 4), words_ + at);
    return words_ + skipped;
  }

 private:
  HWY_ALIGN uint32_t words_[kDrawn + 2 * HWY_MAX_BYTES] = {};
};

HWY_INLINE void keep(Vec v, float* to, const uint32_t*, Draw) { store(v, to); }
HWY_INLINE void keep(Vec v, bf16* to, const uint32_t* word, Draw which) {
  if (!word) return store(v, to);
  const Words d;
  auto drawn = hn::LoadU(d, word), exponent = hn::Set(d, 0x7f800000u), bits = hn::BitCast(d, v);
  auto low = which == Draw::low    ? hn::And(drawn, hn::Set(d, 0xffffu))
             : which == Draw::high ? hn::ShiftRight<16>(drawn)
                                   : hn::ShiftRight<16>(hn::Mul(drawn, hn::Set(d, kMix)));
  auto sum = hn::Add(bits, low);
  auto special = hn::Or(hn::Eq(hn::And(bits, exponent), exponent), hn::Eq(hn::And(sum, exponent), exponent));
  auto quiet = hn::IfThenElse(hn::RebindMask(d, hn::IsNaN(v)), hn::Or(bits, hn::Set(d, 0x400000u)), bits);
  auto top = hn::ShiftRight<16>(hn::IfThenElse(special, quiet, sum));
  hn::StoreU(hn::TruncateTo(Halves(), top), Halves(), reinterpret_cast<uint16_t*>(to));
}
template <typename T>
HWY_INLINE void keep_part(Vec v, T* to, const uint32_t* word, Draw which, int64_t count) {
  T part[HWY_MAX_BYTES / sizeof(float)] = {};
  keep(v, part, word, which);
  std::copy(part, part + count, to);
}

// The operands of an update from one element on, `count` of them where it is below lanes().
template <typename G, typename M, typename S, typename T, int n>
struct Place {
  const G* grad;
  M* master;
  S *first, *second;
  T* param;  // null: the master

  HWY_INLINE Place at(int64_t e) const {
    return {grad + e, master + e, first + e, n == 2 ? second + e : nullptr, param ? param + e : nullptr};
  }
  template <typename Step>
  HWY_INLINE void renew(const Step& step, const uint32_t* drawn) const {
    Elements old{load(master), load(first), hn::Zero(Lanes())};
    if constexpr (n == 2) old.second = load(second);
    Elements next = update(step, load(grad), old);
    keep(next.p, master, drawn, Draw::mixed);
    keep(next.first, first, drawn, Draw::low);
    if constexpr (n == 2) keep(next.second, second, drawn, Draw::high);
    if (param) store(load(master), param);
  }
  template <typename Step>
  HWY_INLINE void renew_part(const Step& step, const uint32_t* drawn, int64_t count) const {
    Elements old{load_part(master, count), load_part(first, count), hn::Zero(Lanes())};
    if constexpr (n == 2) old.second = load_part(second, count);
    Elements next = update(step, load_part(grad, count), old);
    keep_part(next.p, master, drawn, Draw::mixed, count);
    keep_part(next.first, first, drawn, Draw::low, count);
    if constexpr (n == 2) keep_part(next.second, second, drawn, Draw::high, count);
    for (int64_t e = 0; param && e < count; ++e) param[e] = static_cast<T>(static_cast<float>(master[e]));
  }
};

// `update(step, grad, elements)` makes the next elements, where Step(c) holds the constants and
// Step::kStates, 1 or 2, says how many states there are. in: grad of type G; out: master of type M, states of
// type S, param of type T, which may be the master.
template <typename G, typename M, typename S, typename T, typename Step>
void update_elements(const KernelContext& c) {
  constexpr int n = Step::kStates;
  const bool own = c.out[0].data == c.out[n + 1].data;
  const Place<G, M, S, T, n> all{c.in[0].as<G>(), c.out[0].as<M>(), c.out[1].as<S>(),
                                 n == 2 ? c.out[2].as<S>() : nullptr, own ? nullptr : c.out[n + 1].as<T>()};
  const Step constants(c);
  const Rounding rounding(c);
  for_blocks(c.team, c.in[0].numel(), ds::cpu::kBlock, [&](int64_t first, int64_t last) HWY_ATTR {
    const Step step = constants;
    const Place<G, M, S, T, n> place = all;
    Words16 words;
    for (int64_t begin = first; begin < last; begin += kDrawn) {
      const int64_t end = std::min(last, begin + kDrawn), width = lanes();
      const uint32_t* word = words.of(rounding, begin, end - begin);
      int64_t e = begin;
      for (; e + width <= end; e += width) place.at(e).renew(step, word ? word + (e - begin) : nullptr);
      if (e < end) place.at(e).renew_part(step, word ? word + (e - begin) : nullptr, end - e);
    }
  });
}

template <typename Step>
void update_of_types(const KernelContext& c) {
  if (c.scalars.skip != 0) return skip_update(c);
  by_type_among<float, bf16>("cpu", c.out[0].dtype, [&](auto m) {
    by_type_among<float, bf16>("cpu", c.out[1].dtype, [&](auto s) {
      by_type(c.out[Step::kStates + 1].dtype, [&](auto t) {
        by_type_among<float, bf16>("cpu", c.in[0].dtype, [&](auto g) {
          update_elements<decltype(g), decltype(m), decltype(s), decltype(t), Step>(c);
        });
      });
    });
  });
}

}  // namespace ds::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
