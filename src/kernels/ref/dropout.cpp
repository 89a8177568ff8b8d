// Dropout of elements, and layerdrop, which leaves out a whole layer for a micro-batch (Fan et al.,
// "Reducing Transformer Depth on Demand with Structured Dropout", arXiv:1909.11556). The random
// numbers depend only on seed, step, leaf and attribute `op`, so the backward pass draws the same
// numbers.
#include <algorithm>
#include <array>
#include <cstdint>

#include "core/base/random.h"
#include "kernels/formulas/op_stream.h"
#include "kernels/ref/ref.h"

namespace ds::ref {
namespace {

// y[e] = x[e] / (1 - p) if uniform01(word e of (seed, step, leaf, op)) >= p, otherwise 0. Outside
// training, y = x.
template <typename T>
void dropout(const KernelContext& c) {
  const T* x = c.in[0].as<T>();
  T* y = c.out[0].as<T>();
  double p = c.attrs.real("p");
  const RandomStream stream = op_stream(c);
  Wide<T> scale = static_cast<Wide<T>>(1 / (1 - p));
  std::array<uint32_t, 4> words{};
  for (int64_t e = 0; e < c.in[0].numel(); ++e) {
    // A block of the stream has four words.
    if (e % 4 == 0) words = stream.block(static_cast<uint64_t>(e / 4));
    // The comparison in f32 is part of the definition, so that all implementations keep the same
    // elements.
    bool keep = uniform01(words[e % 4]) >= static_cast<float>(p);
    y[e] = c.scalars.train == 0 ? x[e] : static_cast<T>(keep ? get(x, e) * scale : Wide<T>(0));
  }
}

// Returns whether this micro-batch leaves the layer out: uniform01(word 0 of (seed, step, leaf,
// op)) < p.
bool leaves_out(const KernelContext& c) {
  return c.scalars.train != 0 &&
         uniform01(op_stream(c).block(0)[0]) < static_cast<float>(c.attrs.real("p"));
}

// z = x, the layer's input, if the layer is left out, otherwise y, its output.
template <typename T>
void layerdrop(const KernelContext& c) {
  const T* chosen = c.in[leaves_out(c) ? 0 : 1].as<T>();
  std::copy_n(chosen, c.in[0].numel(), c.out[0].as<T>());
}

// dx = dz and dy = 0 if the layer is left out, otherwise dx = 0 and dy = dz.
template <typename T>
void layerdrop_dx(const KernelContext& c) {
  const TensorView &seen = c.out[leaves_out(c) ? 0 : 1], &unseen = c.out[leaves_out(c) ? 1 : 0];
  std::copy_n(c.in[0].as<T>(), c.in[0].numel(), seen.as<T>());
  std::fill_n(unseen.as<T>(), c.in[0].numel(), T(0));
}

}  // namespace

void add_dropout(KernelRegistry& registry) {
  add_by_type(registry, "layerdrop", []<typename T>() { return layerdrop<T>; });
  add_by_type(registry, "layerdrop_dx", []<typename T>() { return layerdrop_dx<T>; });
  add_by_type(registry, "dropout", []<typename T>() { return dropout<T>; });
}

}  // namespace ds::ref
