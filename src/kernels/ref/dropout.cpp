#include <algorithm>
#include <array>
#include <cstdint>

#include "core/base/random.h"
#include "kernels/ref/ref.h"

namespace ds::ref {
namespace {

// y[e] = x[e] / (1 - p) where uniform01(word e of (seed, step, leaf, op)) >= p, else 0; y = x
// outside training
template <typename T>
void dropout(const KernelContext& c) {
  const T* x = c.in[0].as<T>();
  T* y = c.out[0].as<T>();
  double p = c.attrs.real("p");
  RandomStream stream{c.scalars.seed, static_cast<uint32_t>(c.scalars.step),
                      static_cast<uint32_t>(c.leaf), static_cast<uint32_t>(c.attrs.integer("op"))};
  Wide<T> scale = static_cast<Wide<T>>(1 / (1 - p));
  std::array<uint32_t, 4> words{};
  for (int64_t e = 0; e < c.in[0].numel(); ++e) {
    if (e % 4 == 0) words = stream.block(static_cast<uint64_t>(e / 4));
    bool keep = uniform01(words[e % 4]) >= static_cast<float>(p);
    y[e] = c.scalars.train == 0 ? x[e] : static_cast<T>(keep ? get(x, e) * scale : Wide<T>(0));
  }
}

// Whether this micro-batch leaves the layer out: uniform01(word 0 of (seed, step, leaf, op)) < p.
bool leaves_out(const KernelContext& c) {
  RandomStream stream{c.scalars.seed, static_cast<uint32_t>(c.scalars.step),
                      static_cast<uint32_t>(c.leaf), static_cast<uint32_t>(c.attrs.integer("op"))};
  return c.scalars.train != 0 &&
         uniform01(stream.block(0)[0]) < static_cast<float>(c.attrs.real("p"));
}

// z = x where the layer is left out, else y
template <typename T>
void layerdrop(const KernelContext& c) {
  const T* chosen = c.in[leaves_out(c) ? 0 : 1].as<T>();
  std::copy_n(chosen, c.in[0].numel(), c.out[0].as<T>());
}

// dx = dz and dy = 0 where the layer is left out, else the other way round
template <typename T>
void layerdrop_dx(const KernelContext& c) {
  const TensorView &seen = c.out[leaves_out(c) ? 0 : 1], &unseen = c.out[leaves_out(c) ? 1 : 0];
  std::copy_n(c.in[0].as<T>(), c.in[0].numel(), seen.as<T>());
  std::fill_n(unseen.as<T>(), c.in[0].numel(), T(0));
}

}  // namespace

void add_dropout(KernelRegistry& registry) {
  add_kernel(registry, "layerdrop", [](const KernelContext& c) {
    by_type(c.in[0].dtype, [&](auto t) { layerdrop<decltype(t)>(c); });
  });
  add_kernel(registry, "layerdrop_dx", [](const KernelContext& c) {
    by_type(c.in[0].dtype, [&](auto t) { layerdrop_dx<decltype(t)>(c); });
  });
  add_kernel(registry, "dropout", [](const KernelContext& c) {
    by_type(c.in[0].dtype, [&](auto t) { dropout<decltype(t)>(c); });
  });
}

}  // namespace ds::ref
