// Quantization and its inverse, bit-identical to the reference (kernels/ref/quantize.cpp explains
// it). A granule of 256 elements is widened to an array in the first-level cache, and the largest
// magnitude, which determines the scale, is found at the same time. Then one pass over the array
// computes the codes, and another the error.
#include "kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/quantize.cpp"
#include <hwy/foreach_target.h>

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "core/program/codes.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/rank_sum-inl.h"
#include "kernels/cpu/simd-inl.h"
#include "kernels/formulas/feedback.h"

HWY_BEFORE_NAMESPACE();
namespace ds::cpu::HWY_NAMESPACE {

using Codes8 = hn::Rebind<int8_t, Lanes>;
using Bytes8 = hn::Rebind<uint8_t, Lanes>;

constexpr int64_t kHalf = kGranule / 2;
constexpr int64_t kGranulesOfTask = 64;
constexpr uint32_t kInfinity = 0x7f800000, kNan = 0x7fc00000;

// value = x + held, or x if `held` is null. Returns the bits of the largest |value| as an f32. A
// NaN compares above infinity, so one comparison finds either.
template <typename T>
HWY_INLINE uint32_t load_granule(const T* x, const float* held, float* value) {
  const Words words;
  auto top = hn::Zero(words);
  for (int64_t e = 0; e < kGranule; e += lanes()) {
    Vec v = load(x + e);
    if (held) v = hn::Add(v, load(held + e));
    store(v, value + e);
    top = hn::Max(top, hn::BitCast(words, hn::Abs(v)));
  }
  return hn::GetLane(hn::MaxOfLanes(words, top));
}

HWY_INLINE hn::Vec<Ints> encode(const float* value, Vec inverse) {
  return hn::NearestInt(hn::Mul(load(value), inverse));
}

// Writes the codes of a granule; with 4 bits, elements e and e + 128 share a byte.
HWY_INLINE void store_codes(const float* value, float scale, int64_t bits, uint8_t* codes) {
  const Vec inverse = hn::Set(Lanes(), 1 / scale);
  const Ints ints;
  if (bits == 8) {
    for (int64_t e = 0; e < kGranule; e += lanes()) {
      hn::StoreU(hn::DemoteTo(Codes8(), encode(value + e, inverse)), Codes8(),
                 reinterpret_cast<int8_t*>(codes) + e);
    }
    return;
  }
  const auto nibble = hn::Set(ints, 15);
  for (int64_t e = 0; e < kHalf; e += lanes()) {
    auto low = hn::And(encode(value + e, inverse), nibble);
    auto high = hn::ShiftLeft<4>(hn::And(encode(value + kHalf + e, inverse), nibble));
    hn::StoreU(hn::DemoteTo(Bytes8(), hn::Or(low, high)), Bytes8(), codes + e);
  }
}

// error = keep * held + take * (value - its decoded code). A null `held` counts as 0.
HWY_INLINE void store_error(const float* value, float scale, const float* held,
                            const Feedback& feedback, float* error) {
  const Lanes d;
  const Vec inverse = hn::Set(d, 1 / scale), unit = hn::Set(d, scale);
  const Vec keep = hn::Set(d, feedback.keep), take = hn::Set(d, feedback.take);
  for (int64_t e = 0; e < kGranule; e += lanes()) {
    Vec lost =
        hn::Sub(load(value + e), hn::Mul(hn::ConvertTo(d, encode(value + e, inverse)), unit));
    Vec old = held ? load(held + e) : hn::Zero(d);
    store(hn::Add(hn::Mul(keep, old), hn::Mul(take, lost)), error + e);
  }
}

// Quantizes one granule. The granule is first read without its error, to find out whether all its
// elements are 0.
template <typename T>
HWY_INLINE void quantize_granule(const T* x, int64_t bits, const Feedback& feedback, float* error,
                                 uint8_t* codes) {
  HWY_ALIGN float value[kGranule];
  const float* held = feedback.on && !feedback.fresh ? error : nullptr;
  uint32_t top = load_granule(x, nullptr, value);
  // A granule of zeros sends zeros, and its error is kept for a later step.
  bool stays = feedback.stays || (held && top == 0);
  if (held && top != 0) top = load_granule(x, held, value);
  // If an element is infinite or NaN, the scale is NaN, so that the receivers decode NaN, and the
  // error, unless it stays, is cleared.
  if (top >= kInfinity) {
    std::memcpy(codes, &kNan, sizeof kNan);
    std::memset(codes + sizeof kNan, 0, static_cast<size_t>(kGranule * bits / 8));
    if (feedback.on && !stays) std::fill_n(error, kGranule, 0.0f);
    return;
  }
  float largest;
  std::memcpy(&largest, &top, sizeof largest);
  float scale = std::max(largest / static_cast<float>(largest_code(bits)), kLeastScale);
  std::memcpy(codes, &scale, sizeof scale);
  store_codes(value, scale, bits, codes + sizeof scale);
  if (feedback.on && !stays) store_error(value, scale, held, feedback, error);
}

template <typename T>
void quantize(const KernelContext& c) {
  const T* x = c.in[0].as<T>();
  const Feedback feedback(c);
  float* error = c.out[0].as<float>();
  auto* codes = c.out.back().as<uint8_t>();
  int64_t bits = c.attrs.integer("bits");
  for_blocks(c.team, c.in[0].numel() / kGranule, kGranulesOfTask,
             [=](int64_t begin, int64_t end) HWY_ATTR {
               for (int64_t g = begin; g < end; ++g) {
                 quantize_granule(x + g * kGranule, bits, feedback, error + g * kGranule,
                                  codes + g * granule_code_bytes(bits));
               }
             });
}

// Decodes a granule. Shifts to the left and back extend the sign of a nibble.
template <typename T>
HWY_INLINE void decode(const uint8_t* codes, int64_t bits, T* y) {
  const Lanes d;
  const Ints ints;
  float scale;
  std::memcpy(&scale, codes, sizeof scale);
  codes += sizeof scale;
  const Vec unit = hn::Set(d, scale);
  if (bits == 8) {
    for (int64_t e = 0; e < kGranule; e += lanes()) {
      auto code =
          hn::PromoteTo(ints, hn::LoadU(Codes8(), reinterpret_cast<const int8_t*>(codes) + e));
      store(hn::Mul(hn::ConvertTo(d, code), unit), y + e);
    }
    return;
  }
  for (int64_t e = 0; e < kHalf; e += lanes()) {
    auto pair = hn::PromoteTo(ints, hn::LoadU(Bytes8(), codes + e));
    auto low = hn::ShiftRight<28>(hn::ShiftLeft<28>(pair));
    auto high = hn::ShiftRight<28>(hn::ShiftLeft<24>(pair));
    store(hn::Mul(hn::ConvertTo(d, low), unit), y + e);
    store(hn::Mul(hn::ConvertTo(d, high), unit), y + kHalf + e);
  }
}

template <typename T>
void dequantize(const KernelContext& c) {
  const auto* codes = c.in[0].as<uint8_t>();
  T* y = c.out[0].as<T>();
  int64_t bits = c.attrs.integer("bits");
  for_blocks(c.team, c.out[0].numel() / kGranule, kGranulesOfTask,
             [=](int64_t begin, int64_t end) HWY_ATTR {
               for (int64_t g = begin; g < end; ++g)
                 decode(codes + g * granule_code_bytes(bits), bits, y + g * kGranule);
             });
}

// Sums one granule over all ranks, whose codes are `stride` bytes apart.
HWY_INLINE void sum_granule(const uint8_t* codes, int64_t stride, int64_t ranks, int64_t bits,
                            float* y) {
  auto load_rank = [=](int64_t r, float* to) HWY_ATTR { decode(codes + r * stride, bits, to); };
  sum_over_ranks(ranks, kGranule, load_rank, y);
}

void dequantize_sum(const KernelContext& c) {
  const auto* codes = c.in[0].as<uint8_t>();
  float* y = c.out[0].as<float>();
  int64_t bits = c.attrs.integer("bits"), ranks = c.attrs.integer("ranks");
  ensure(ranks < kMostSummedRanks, "dequantize_sum supports fewer than {} ranks, got {}",
         kMostSummedRanks, ranks);
  int64_t stride = code_bytes(c.out[0].numel(), bits);
  for_blocks(c.team, c.out[0].numel() / kGranule, kGranulesOfTask,
             [=](int64_t begin, int64_t end) HWY_ATTR {
               for (int64_t g = begin; g < end; ++g)
                 sum_granule(codes + g * granule_code_bytes(bits), stride, ranks, bits,
                             y + g * kGranule);
             });
}

void add_quantize(KernelRegistry& registry) {
  add_by_type(registry, "quantize", []<typename T>() { return quantize<T>; });
  add_by_type<out_type<0>>(registry, "dequantize", []<typename T>() { return dequantize<T>; });
  add_kernel(registry, "dequantize_sum", dequantize_sum);
}

}  // namespace ds::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
