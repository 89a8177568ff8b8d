#include "kernels/formulas/rope.h"

#include <cmath>
#include <cstdint>

#include "kernels/ref/ref.h"

namespace ds::ref {
namespace {

// Rotary position embeddings (Su et al., "RoFormer", arXiv:2104.09864). A pair of columns (a, b)
// becomes m (a cos t - b sin t, b cos t + a sin t) with the angle t = p f_i, where p is
// positions[row] or, without positions, row mod seq. Other columns are copied.
// kernels/formulas/rope.h has the frequencies f_i and the magnitude m.
template <typename T>
void rope(const KernelContext& c) {
  using A = Wide<T>;
  const T* x = c.in[0].as<T>();
  T* y = c.out[0].as<T>();
  const int32_t* positions = c.in.size() >= 2 ? c.in[1].as<int32_t>() : nullptr;
  int64_t rows = c.in[0].dims[0], width = c.in[0].dims[1];
  const Rope rope(c.attrs, width, c.in.size() == 3 ? c.in[2].as<int32_t>()[0] : 0);
  for (int64_t e = 0; e < rows * width; ++e) y[e] = x[e];
  for (int64_t i = 0; i < rope.dims / 2; ++i) {
    double frequency = rope.frequency(i);
    for (int64_t r = 0; r < rows; ++r) {
      double angle = static_cast<double>(positions ? positions[r] : r % rope.seq) * frequency;
      A cosine = static_cast<A>(rope.magnitude * std::cos(angle));
      A sine = static_cast<A>(rope.magnitude * std::sin(angle));
      for (int64_t h = 0; h < rope.heads; ++h) {
        if (!rope.turns(h)) continue;
        int64_t first = r * width + h * rope.depth + rope.first(i),
                second = first + rope.distance();
        A a = get(x, first), b = get(x, second);
        y[first] = static_cast<T>(a * cosine - b * sine);
        y[second] = static_cast<T>(b * cosine + a * sine);
      }
    }
  }
}

}  // namespace

void add_rope(KernelRegistry& registry) {
  add_by_type(registry, "rope", []<typename T>() { return rope<T>; });
}

}  // namespace ds::ref
