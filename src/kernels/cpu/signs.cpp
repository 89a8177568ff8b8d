// 1-bit compression, bit-identical to the reference (kernels/ref/signs.cpp explains the exchange).
// Signs are processed in words of 64 bits. A vector comparison puts the first lane into the least
// significant bit, but on the wire the first element of a byte is in the most significant bit, so
// the bits of each byte are reversed when a word is loaded or stored. Each tensor is divided into
// tasks separately. Sums of squares are added in the order of the reference, whatever the division
// is.
#include "kernels/formulas/signs.h"

#include "kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/signs.cpp"
#include <hwy/foreach_target.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "core/program/signs.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/simd-inl.h"
#include "kernels/cpu/square_sums-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ds::cpu::HWY_NAMESPACE {

// The number of elements whose signs fill one word.
constexpr int64_t kWord = 64;
// The number of blocks of kSignSum elements in one task.
constexpr int64_t kSumsOfTask = 64;
constexpr int64_t kTask = kSumsOfTask * kSignSum;
// A vector of at most 16 lanes, whose mask is a part of a word.
using Few = hn::CappedTag<float, 16>;
using FewWords = hn::Rebind<uint32_t, Few>;

// Reverses the bits of each byte, by swapping neighbours, pairs and halves.
HWY_INLINE uint64_t reverse_in_bytes(uint64_t w) {
  w = (w >> 1 & 0x5555555555555555u) | (w & 0x5555555555555555u) << 1;
  w = (w >> 2 & 0x3333333333333333u) | (w & 0x3333333333333333u) << 2;
  return (w >> 4 & 0x0F0F0F0F0F0F0F0Fu) | (w & 0x0F0F0F0F0F0F0F0Fu) << 4;
}

// Load or store a word of signs, in which bit e belongs to element e. Only `count` elements, a
// multiple of 8, are in memory.
HWY_INLINE uint64_t load_bits(const uint8_t* bits, int64_t count) {
  uint64_t word = 0;
  std::memcpy(&word, bits, static_cast<size_t>(std::min(count, kWord)) / 8);
  return reverse_in_bytes(word);
}
HWY_INLINE void store_bits(uint64_t word, int64_t count, uint8_t* bits) {
  word = reverse_in_bytes(word);
  std::memcpy(bits, &word, static_cast<size_t>(std::min(count, kWord)) / 8);
}

// Returns the bits from e on of a word as a mask of lanes.
HWY_INLINE hn::Mask<Few> mask_of(uint64_t word, int64_t e) {
  const FewWords u;
  auto lane = hn::Shl(hn::Set(u, 1u), hn::Iota(u, 0u));
  return hn::RebindMask(Few(),
                        hn::TestBit(hn::Set(u, static_cast<uint32_t>(word >> e & 0xFFFF)), lane));
}

// y[e] = +scale or -scale for the elements of a word; add_spread() adds these values to y instead.
HWY_INLINE void spread(uint64_t word, float scale, float* y) {
  const Few d;
  auto up = hn::Set(d, scale), down = hn::Neg(up);
  for (int64_t e = 0; e < kWord; e += static_cast<int64_t>(hn::Lanes(d)))
    hn::StoreU(hn::IfThenElse(mask_of(word, e), up, down), d, y + e);
}
HWY_INLINE void add_spread(uint64_t word, float scale, float* y) {
  const Few d;
  auto up = hn::Set(d, scale), down = hn::Neg(up);
  for (int64_t e = 0; e < kWord; e += static_cast<int64_t>(hn::Lanes(d)))
    hn::StoreU(hn::Add(hn::LoadU(d, y + e), hn::IfThenElse(mask_of(word, e), up, down)), d, y + e);
}

// Returns the signs of kWord elements, and subtracts from each element its decoded sign, +scale or
// -scale.
HWY_INLINE uint64_t take_signs(float scale, float* v) {
  const Few d;
  auto up = hn::Set(d, scale), down = hn::Neg(up), zero = hn::Zero(d);
  uint64_t word = 0;
  for (int64_t e = 0; e < kWord; e += static_cast<int64_t>(hn::Lanes(d))) {
    auto x = hn::LoadU(d, v + e);
    auto mask = hn::Ge(x, zero);
    uint64_t bits = 0;
    hn::StoreMaskBits(d, mask, reinterpret_cast<uint8_t*>(&bits));
    word |= bits << e;
    hn::StoreU(hn::Sub(x, hn::IfThenElse(mask, up, down)), d, v + e);
  }
  return word;
}

// Stores the sum of squares of every kSignSum elements of x: eight sums side by side, then the
// rest.
void sum_squares(const float* x, int64_t count, double* sums) {
  int64_t k = 0, whole = count / kSignSum;
  for (; k + kChains <= whole; k += kChains) eight_sums(x + k * kSignSum, sums + k);
  for (; k * kSignSum < count; ++k)
    sums[k] = one_sum(x + k * kSignSum, std::min(kSignSum, count - k * kSignSum));
}
static_assert(kSignSum == kSquares);

void add_error(const KernelContext& c) {
  if (skip_signs(c)) return;
  const float* x = c.in[0].as<float>();
  float* error = c.out[0].as<float>();
  double* sums = c.out[1].as<double>();
  int64_t ranks = c.attrs.integer("ranks");
  for_sign_tensors(c.runs, ranks, ranks, [&](const SignTensor& t) {
    const float* given = x + t.begin;
    float* v = error + ranks * t.first;
    double* squares = sums + t.sums;
    int64_t numel = t.numel;
    for_blocks(c.team, ranks * t.chunk, kTask, [=](int64_t begin, int64_t end) HWY_ATTR {
      auto add = [](Vec a, Vec b) HWY_ATTR { return hn::Add(a, b); };
      map(begin, std::max(begin, std::min(end, numel)), v, add, given, v);
      sum_squares(v + begin, end - begin, squares + begin / kSignSum);
    });
  });
}

void mean_signs(const KernelContext& c) {
  if (skip_signs(c)) return;
  const auto* blocks = c.in[0].as<uint8_t>();
  float* error = c.out[0].as<float>();
  double* sums = c.out[1].as<double>();
  int64_t ranks = c.attrs.integer("ranks"), block = c.in[0].numel() / ranks;
  for_sign_tensors(c.runs, ranks, 1, [&](const SignTensor& t) {
    float* v = error + t.first;
    double* squares = sums + t.sums;
    for_blocks(c.team, t.chunk, kTask, [=](int64_t begin, int64_t end) HWY_ATTR {
      for (int64_t e = begin; e < end; e += kWord) {
        HWY_ALIGN float mean[kWord] = {};
        int64_t count = std::min(kWord, end - e);
        for (int64_t r = 0; r < ranks; ++r) {
          const uint8_t* theirs = blocks + r * block;
          add_spread(load_bits(theirs + t.bits + e / 8, count),
                     load_scale(theirs, t.index) / static_cast<float>(ranks), mean);
        }
        for (int64_t i = 0; i < count; ++i) v[e + i] = mean[i] + v[e + i];
      }
      sum_squares(v + begin, end - begin, squares + begin / kSignSum);
    });
  });
}

void pack_signs(const KernelContext& c) {
  if (skip_signs(c)) return;
  const double* sums = c.in[0].as<double>();
  float* error = c.out[0].as<float>();
  auto* codes = c.out[1].as<uint8_t>();
  int64_t ranks = c.attrs.integer("ranks"), ways = c.attrs.integer("ways"),
          block = c.out[1].numel() / ways;
  for_sign_tensors(c.runs, ranks, ways, [&](const SignTensor& t) {
    float scale = scale_of_sums(sums + t.sums, ways * t.chunk);
    for (int64_t w = 0; w < ways; ++w) {
      uint8_t* to = codes + w * block;
      std::memcpy(to + t.index * int64_t{sizeof scale}, &scale, sizeof scale);
      float* v = error + ways * t.first + w * t.chunk;
      uint8_t* bits = to + t.bits;
      for_blocks(c.team, t.chunk, kTask, [=](int64_t begin, int64_t end) HWY_ATTR {
        int64_t e = begin;
        for (; e + kWord <= end; e += kWord)
          store_bits(take_signs(scale, v + e), kWord, bits + e / 8);
        if (e == end) return;
        HWY_ALIGN float part[kWord] = {};
        std::copy_n(v + e, end - e, part);
        store_bits(take_signs(scale, part), end - e, bits + e / 8);
        std::copy_n(part, end - e, v + e);
      });
    }
  });
}

void unpack_signs(const KernelContext& c) {
  if (c.scalars.skip != 0) return;
  const auto* blocks = c.in[0].as<uint8_t>();
  float* y = c.out[0].as<float>();
  int64_t ranks = c.attrs.integer("ranks"), block = c.in[0].numel() / ranks;
  for_sign_tensors(c.runs, ranks, ranks, [&](const SignTensor& t) {
    for (int64_t w = 0; w * t.chunk < t.numel; ++w) {
      const uint8_t* from = blocks + w * block;
      float scale = load_scale(from, t.index);
      const uint8_t* bits = from + t.bits;
      float* to = y + t.begin + w * t.chunk;
      int64_t wanted = std::min(t.chunk, t.numel - w * t.chunk), held = t.chunk;
      for_blocks(c.team, wanted, kTask, [=](int64_t begin, int64_t end) HWY_ATTR {
        int64_t e = begin;
        for (; e + kWord <= end; e += kWord) spread(load_bits(bits + e / 8, kWord), scale, to + e);
        if (e == end) return;
        HWY_ALIGN float part[kWord];
        spread(load_bits(bits + e / 8, held - e), scale, part);
        std::copy_n(part, end - e, to + e);
      });
    }
  });
}

void add_signs(KernelRegistry& registry) {
  add_kernel(registry, "add_error", add_error);
  add_kernel(registry, "mean_signs", mean_signs);
  add_kernel(registry, "pack_signs", pack_signs);
  add_kernel(registry, "unpack_signs", unpack_signs);
}

}  // namespace ds::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
