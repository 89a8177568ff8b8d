// Dropout, bit-identical to the reference. layerdrop is left to the reference, which only copies.
#include <cstdint>

#include "kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/dropout.cpp"
#include <hwy/foreach_target.h>

#include "core/base/random.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/philox-inl.h"
#include "kernels/cpu/simd-inl.h"
#include "kernels/formulas/op_stream.h"

HWY_BEFORE_NAMESPACE();
namespace ds::cpu::HWY_NAMESPACE {

// y[e] = x[e] / (1 - p) if uniform01(word e) >= p, otherwise 0. `begin` is a multiple of a task's
// size, so words are drawn for whole vectors.
template <typename T>
void drop(const T* x, T* y, int64_t begin, int64_t end, const RandomStream& stream, float p,
          float scale) {
  const Lanes d;
  uint32_t words[4 * HWY_MAX_BYTES / sizeof(uint32_t)];
  int64_t width = lanes();
  // A random word decides about each element; kept elements are scaled so that the mean is
  // unchanged.
  auto keep = [&](int64_t at, Vec v) HWY_ATTR {
    return hn::IfThenElseZero(hn::Ge(uniform(words + at), hn::Set(d, p)),
                              hn::Mul(v, hn::Set(d, scale)));
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
void dropout(const KernelContext& c) {
  const T* x = c.in[0].as<T>();
  T* y = c.out[0].as<T>();
  double p = c.attrs.real("p");
  const RandomStream stream = op_stream(c);
  bool train = c.scalars.train != 0;
  for_blocks(c.team, c.in[0].numel(), kBlock, [=](int64_t begin, int64_t end) HWY_ATTR {
    // Outside training, y = x.
    if (!train)
      return map(
          begin, end, y, [](Vec v) HWY_ATTR { return v; }, x);
    drop(x, y, begin, end, stream, static_cast<float>(p), static_cast<float>(1 / (1 - p)));
  });
}

void add_dropout(KernelRegistry& registry) {
  add_by_type(registry, "dropout", []<typename T>() { return dropout<T>; });
}

}  // namespace ds::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
