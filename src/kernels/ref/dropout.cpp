#include <array>
#include <cstdint>

#include "core/base/random.h"
#include "kernels/ref/ref.h"

namespace ds::ref {
namespace {

// y[e] = x[e] / (1 - p) where uniform01(word e of (seed, step, leaf, op)) >= p, else 0; y = x outside
// training
template <typename T>
void dropout(const KernelContext& c) {
  const T* x = c.in[0].as<T>();
  T* y = c.out[0].as<T>();
  double p = c.attrs.real("p");
  RandomStream stream{c.scalars.seed, static_cast<uint32_t>(c.scalars.step), static_cast<uint32_t>(c.leaf),
                      static_cast<uint32_t>(c.attrs.integer("op"))};
  Wide<T> scale = static_cast<Wide<T>>(1 / (1 - p));
  std::array<uint32_t, 4> words{};
  for (int64_t e = 0; e < c.in[0].numel(); ++e) {
    if (e % 4 == 0) words = stream.block(static_cast<uint64_t>(e / 4));
    bool keep = uniform01(words[e % 4]) >= static_cast<float>(p);
    y[e] = c.scalars.train == 0 ? x[e] : static_cast<T>(keep ? get(x, e) * scale : Wide<T>(0));
  }
}

}  // namespace

void add_dropout(KernelRegistry& registry) {
  add_kernel(registry, "dropout", [](const KernelContext& c) {
    by_type(c.in[0].dtype, [&](auto t) { dropout<decltype(t)>(c); });
  });
}

}  // namespace ds::ref
