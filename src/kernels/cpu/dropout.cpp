#include "kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/dropout.cpp"
#include <hwy/foreach_target.h>

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ds::cpu::HWY_NAMESPACE {

// Philox4x32-10 of consecutive blocks, one per lane; core/base/random.cpp defines the stream.
using U32 = hn::Vec<Words>;

// High and low halves of the products of all lanes of a with k.
#if HWY_TARGET == HWY_SCALAR
HWY_INLINE void multiply(U32 a, uint32_t k, U32& high, U32& low) {
  uint64_t product = uint64_t{hn::GetLane(a)} * k;
  high = hn::Set(Words(), static_cast<uint32_t>(product >> 32));
  low = hn::Set(Words(), static_cast<uint32_t>(product));
}
#else
HWY_INLINE void multiply(U32 a, uint32_t k, U32& high, U32& low) {
  const Words d;
  const hn::Repartition<uint64_t, Words> wide;
  U32 factor = hn::Set(d, k);
  auto even = hn::MulEven(a, factor);
  auto odd = hn::MulEven(hn::BitCast(d, hn::ShiftRight<32>(hn::BitCast(wide, a))), factor);
  high = hn::OddEven(hn::BitCast(d, odd), hn::BitCast(d, hn::ShiftRight<32>(even)));
  low = hn::OddEven(hn::BitCast(d, hn::ShiftLeft<32>(odd)), hn::BitCast(d, even));
}
#endif

struct Stream {
  uint32_t key[2], op, step, leaf;
};

// The 4 * lanes() words of the blocks from `block` on, in order.
HWY_INLINE void draw(const Stream& s, uint64_t block, uint32_t* words) {
  const Words d;
  U32 index = hn::Add(hn::Set(d, static_cast<uint32_t>(block)), hn::Iota(d, 0));
  // Blocks of one call share the upper half: their number is a multiple of lanes().
  U32 c0 = index, c1 = hn::Set(d, static_cast<uint32_t>(block >> 32) ^ (s.op << 16));
  U32 c2 = hn::Set(d, s.step), c3 = hn::Set(d, s.leaf);
  uint32_t k0 = s.key[0], k1 = s.key[1];
  for (int round = 0; round < 10; ++round) {
    U32 high0, low0, high1, low1;
    multiply(c0, 0xD2511F53u, high0, low0);
    multiply(c2, 0xCD9E8D57u, high1, low1);
    c0 = hn::Xor(hn::Xor(high1, c1), hn::Set(d, k0));
    c1 = low1;
    c2 = hn::Xor(hn::Xor(high0, c3), hn::Set(d, k1));
    c3 = low0;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  hn::StoreInterleaved4(c0, c1, c2, c3, d, words);
}

// y[e] = x[e] / (1 - p) where uniform01(word e) >= p, else 0
template <typename T>
void drop(const T* x, T* y, int64_t begin, int64_t end, const Stream& stream, float p, float scale) {
  const Lanes d;
  uint32_t words[4 * HWY_MAX_BYTES / sizeof(uint32_t)];
  int64_t width = lanes();
  auto keep = [&](int64_t at, Vec v) HWY_ATTR {
    auto top = hn::BitCast(Ints(), hn::ShiftRight<8>(hn::LoadU(Words(), words + at)));
    Vec uniform = hn::Mul(hn::ConvertTo(d, top), hn::Set(d, 0x1p-24f));
    return hn::IfThenElseZero(hn::Ge(uniform, hn::Set(d, p)), hn::Mul(v, hn::Set(d, scale)));
  };
  for (int64_t e = begin; e < end; e += 4 * width) {
    draw(stream, static_cast<uint64_t>(e / 4), words);
    for (int64_t at = 0; at < 4 * width && e + at < end; at += width) {
      int64_t left = end - e - at;
      if (left >= width) {
        store(keep(at, load(x + e + at)), y + e + at);
      } else {
        store_part(keep(at, load_part(x + e + at, left)), y + e + at, left);
      }
    }
  }
}

template <typename T>
void dropout_of(const KernelContext& c) {
  const T* x = c.in[0].as<T>();
  T* y = c.out[0].as<T>();
  double p = c.attrs.real("p");
  Stream stream{{static_cast<uint32_t>(c.scalars.seed), static_cast<uint32_t>(c.scalars.seed >> 32)},
                static_cast<uint32_t>(c.attrs.integer("op")),
                static_cast<uint32_t>(c.scalars.step),
                static_cast<uint32_t>(c.leaf)};
  bool train = c.scalars.train != 0;
  for_blocks(c.team, c.in[0].numel(), kBlock, [=](int64_t begin, int64_t end) HWY_ATTR {
    if (!train)
      return map(
          begin, end, y, [](Vec v) HWY_ATTR { return v; }, x);
    drop(x, y, begin, end, stream, static_cast<float>(p), static_cast<float>(1 / (1 - p)));
  });
}

void dropout(const KernelContext& c) {
  by_type(c.in[0].dtype, [&](auto t) { dropout_of<decltype(t)>(c); });
}

}  // namespace ds::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ds::cpu {

HWY_EXPORT(dropout);

void add_dropout(KernelRegistry& registry) {
  add_kernel(registry, "dropout", [](const KernelContext& c) { HWY_DYNAMIC_DISPATCH(dropout)(c); });
}

}  // namespace ds::cpu
#endif  // HWY_ONCE
