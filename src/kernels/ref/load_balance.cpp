// The loss that balances the load of experts (Fedus et al., "Switch Transformers",
// arXiv:2101.03961), over the routers of all layers together.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>

#include "kernels/kernel.h"
#include "kernels/ref/choice.h"
#include "kernels/ref/ref.h"

namespace ds::ref {
namespace {

// The operands of load_balance: the logits of each layer, then optionally a mask, which is 0 for
// the rows that do not count.
struct Routers {
  std::span<const TensorView> layers;
  const int32_t* mask;
  // `counted` is the number of rows of a layer that count.
  int64_t rows, experts, counted;

  explicit Routers(std::span<const TensorView> in)
      : layers(in), mask(nullptr), rows(in[0].dims[0]), experts(in[0].dims[1]), counted(rows) {
    if (in.back().dtype != DS_DTYPE_I32) return;
    layers = in.first(in.size() - 1);
    mask = in.back().as<int32_t>();
    counted = std::count_if(mask, mask + rows, [](int32_t m) { return m != 0; });
  }
  bool counts(int64_t row) const { return mask == nullptr || mask[row] != 0; }
  // Returns the weight of one row in the mean over the rows that count, in all layers together.
  double weight() const {
    return 1 / (static_cast<double>(counted) * static_cast<double>(layers.size()));
  }
};

// f[e] = the share of rows, over all layers, that have e among their k largest; p[e] = the mean of
// softmax(row)[e].
template <typename T>
void shares(const KernelContext& c, const Routers& routers, std::span<double> f,
            std::span<double> p) {
  int64_t experts = routers.experts, k = c.attrs.integer("k");
  std::fill(f.begin(), f.end(), 0.0);
  std::fill(p.begin(), p.end(), 0.0);
  double weight = routers.weight();
  for (const TensorView& layer : routers.layers) {
    for (int64_t r = 0; r < routers.rows; ++r) {
      if (!routers.counts(r)) continue;
      const T* row = layer.as<T>() + r * experts;
      // Shares are added in f64, because in f32 small shares would be lost in the sum over all
      // rows.
      Wide<T> base = softmax_base(row, experts);
      for (int64_t e = 0; e < experts; ++e) {
        size_t at = static_cast<size_t>(e);
        if (among_largest(row, experts, e, k)) f[at] += weight;
        p[at] += weight * static_cast<double>(std::exp(get(row, e) - base));
      }
    }
  }
}

// loss = E times the sum over e of f_e p_e; 0 if no row counts.
template <typename T>
void load_balance(const KernelContext& c) {
  Routers routers(c.in);
  size_t count = static_cast<size_t>(routers.experts);
  std::span<double> scratch = scratch_of<double>(c, 2 * routers.experts);
  std::span<double> f = scratch.first(count), p = scratch.subspan(count);
  shares<T>(c, routers, f, p);
  double sum = 0;
  for (size_t e = 0; e < count; ++e) sum += f[e] * p[e];
  c.out[0].as<Wide<T>>()[0] = static_cast<Wide<T>>(static_cast<double>(routers.experts) * sum);
}

// dz_j = dloss E / N * s_j (f_j - sum over e of f_e s_e), where s is the softmax of the row and N
// the number of rows that count, in all layers together. f counts choices, so it has no gradient.
// The gradients of rows that do not count are 0.
template <typename T>
void load_balance_dx(const KernelContext& c) {
  Routers routers(c.in.subspan(1));
  int64_t experts = routers.experts;
  size_t count = static_cast<size_t>(experts);
  std::span<double> scratch = scratch_of<double>(c, 2 * experts);
  std::span<double> f = scratch.first(count), p = scratch.subspan(count);
  shares<T>(c, routers, f, p);
  double weight =
      static_cast<double>(c.in[0].as<Wide<T>>()[0]) * static_cast<double>(experts) /
      (static_cast<double>(routers.counted) * static_cast<double>(routers.layers.size()));
  for (size_t layer = 0; layer < routers.layers.size(); ++layer) {
    for (int64_t r = 0; r < routers.rows; ++r) {
      const T* row = routers.layers[layer].as<T>() + r * experts;
      T* dz = c.out[layer].as<T>() + r * experts;
      if (!routers.counts(r)) {
        std::fill(dz, dz + experts, static_cast<T>(Wide<T>(0)));
        continue;
      }
      Wide<T> base = softmax_base(row, experts);
      double mean = 0;
      for (size_t e = 0; e < count; ++e) {
        p[e] = static_cast<double>(std::exp(get(row, static_cast<int64_t>(e)) - base));
        mean += f[e] * p[e];
      }
      for (size_t e = 0; e < count; ++e) {
        dz[e] = static_cast<T>(static_cast<Wide<T>>(weight * p[e] * (f[e] - mean)));
      }
    }
  }
}

}  // namespace

void add_load_balance(KernelRegistry& registry) {
  add_by_type(registry, "load_balance", []<typename T>() { return load_balance<T>; });
  add_by_type<in_type<1>>(registry, "load_balance_dx",
                          []<typename T>() { return load_balance_dx<T>; });
}

}  // namespace ds::ref
