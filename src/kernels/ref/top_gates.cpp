// The gates of a mixture of experts (Shazeer et al., arXiv:1701.06538): the softmax of each row,
// set to 0 except at its k largest elements.
#include <cmath>
#include <cstdint>

#include "core/base/attrs.h"
#include "kernels/kernel.h"
#include "kernels/ref/choice.h"
#include "kernels/ref/ref.h"

namespace ds::ref {
namespace {

// The gates of one row. at(e) returns exp(z_e - top) divided by the sum over the k largest logits
// if `normalize`, otherwise over all logits. It returns 0 for experts that are not chosen.
template <typename T>
struct Gates {
  Gates(const T* logits, int64_t columns, const Attrs& attrs)
      : row(logits),
        experts(columns),
        k(attrs.integer("k")),
        normalize(attrs.integer_or("normalize", 1) != 0) {
    top = largest(row, experts);
    for (int64_t e = 0; e < experts; ++e) {
      if (!normalize || chosen(e)) sum += std::exp(get(row, e) - top);
    }
  }
  bool chosen(int64_t e) const { return among_largest(row, experts, e, k); }
  Wide<T> share(int64_t e) const { return std::exp(get(row, e) - top) / sum; }
  Wide<T> at(int64_t e) const { return chosen(e) ? share(e) : 0; }

  const T* row;
  int64_t experts, k;
  bool normalize;
  Wide<T> top = 0, sum = 0;
};

// y = the gates of every row.
template <typename T>
void top_gates(const KernelContext& c) {
  int64_t rows = c.in[0].dims[0], experts = c.in[0].dims[1];
  T* y = c.out[0].as<T>();
  for (int64_t r = 0; r < rows; ++r) {
    Gates<T> gates(c.in[0].as<T>() + r * experts, experts, c.attrs);
    for (int64_t e = 0; e < experts; ++e) y[r * experts + e] = static_cast<T>(gates.at(e));
  }
}

// dz_j = p_j ([j chosen] dy_j - sum over the chosen of dy p), where p is the softmax over all
// experts or, with `normalize`, over the chosen ones; p_j is then 0 for the other experts.
template <typename T>
void top_gates_dx(const KernelContext& c) {
  int64_t rows = c.in[1].dims[0], experts = c.in[1].dims[1];
  T* dz = c.out[0].as<T>();
  for (int64_t r = 0; r < rows; ++r) {
    const T* dy = c.in[0].as<T>() + r * experts;
    Gates<T> gates(c.in[1].as<T>() + r * experts, experts, c.attrs);
    Wide<T> mean = 0;
    for (int64_t e = 0; e < experts; ++e) mean += get(dy, e) * gates.at(e);
    for (int64_t e = 0; e < experts; ++e) {
      Wide<T> own = gates.chosen(e) ? get(dy, e) : 0;
      Wide<T> p = gates.normalize ? gates.at(e) : gates.share(e);
      dz[r * experts + e] = static_cast<T>(p * (own - mean));
    }
  }
}

}  // namespace

void add_top_gates(KernelRegistry& registry) {
  add_by_type(registry, "top_gates", []<typename T>() { return top_gates<T>; });
  add_by_type(registry, "top_gates_dx", []<typename T>() { return top_gates_dx<T>; });
}

}  // namespace ds::ref
