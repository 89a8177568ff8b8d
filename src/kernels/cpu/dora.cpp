// The magnitudes of adapted weights: the norms of their rows, and their use in a layer. Every row
// of the weight is added up by itself, so no product of the matrices of the adapter is stored.
#include <algorithm>
#include <cmath>
#include <cstdint>

#include "kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/dora.cpp"
#include <hwy/foreach_target.h>

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/simd-inl.h"
#include "kernels/cpu/sum_rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ds::cpu::HWY_NAMESPACE {

// Loads one vector, which ends after `count` elements.
template <typename T>
HWY_INLINE Vec load_up_to(const T* p, int64_t count) {
  return count < lanes() ? load_part(p, count) : load(p);
}

// The operands of dora_norm.
template <typename T>
struct AdaptedWeight {
  explicit AdaptedWeight(const KernelContext& c)
      : w(c.in[0].as<T>()),
        a(c.in[1].as<T>()),
        b(c.in[2].as<T>()),
        norms(c.out[0].as<T>()),
        factor(static_cast<float>(c.attrs.real("factor"))),
        rank(c.in[1].dims[0]),
        inputs(c.in[1].dims[1]),
        outputs(c.in[2].dims[0]) {}
  const T *w, *a, *b;
  T* norms;
  float factor;
  int64_t rank, inputs, outputs;
};

// Computes the norm of a row of a weight [O,I], whose elements are the lanes.
template <typename T>
void norm_of_row(const AdaptedWeight<T>& g, int64_t o) {
  const Lanes d;
  const Vec factor = hn::Set(d, g.factor);
  Vec squares = hn::Zero(d);
  for (int64_t i = 0; i < g.inputs; i += lanes()) {
    const int64_t count = std::min(lanes(), g.inputs - i);
    Vec sum = hn::Zero(d);
    for (int64_t k = 0; k < g.rank; ++k) {
      const Vec b = hn::Set(d, static_cast<float>(g.b[o * g.rank + k]));
      sum = hn::MulAdd(b, load_up_to(g.a + k * g.inputs + i, count), sum);
    }
    const Vec x = hn::MulAdd(factor, sum, load_up_to(g.w + o * g.inputs + i, count));
    squares = hn::MulAdd(x, x, squares);
  }
  g.norms[o] = T(std::sqrt(sum(squares)));
}

// Computes the norms of one vector of rows of a weight [I,O], whose lanes are rows. Some inputs are
// processed at once, so that the elements of b are collected once for all of them.
template <typename T>
void norms_of_lanes(const AdaptedWeight<T>& g, int64_t o) {
  constexpr int64_t kInputs = 16;
  const Lanes d;
  const Vec factor = hn::Set(d, g.factor);
  const int64_t count = std::min(lanes(), g.outputs - o);
  Vec squares = hn::Zero(d);
  for (int64_t first = 0; first < g.inputs; first += kInputs) {
    const int64_t inputs = std::min(kInputs, g.inputs - first);
    Vec sums[kInputs];
    for (Vec& sum : sums) sum = hn::Zero(d);
    for (int64_t k = 0; k < g.rank; ++k) {
      T column[HWY_MAX_BYTES / sizeof(float)];
      for (int64_t l = 0; l < lanes(); ++l)
        column[l] = l < count ? g.b[(o + l) * g.rank + k] : T(0.0f);
      const Vec b = load(column);
      for (int64_t i = 0; i < inputs; ++i) {
        const auto a = static_cast<float>(g.a[k * g.inputs + first + i]);
        sums[i] = hn::MulAdd(b, hn::Set(d, a), sums[i]);
      }
    }
    for (int64_t i = 0; i < inputs; ++i) {
      const Vec x =
          hn::MulAdd(factor, sums[i], load_up_to(g.w + (first + i) * g.outputs + o, count));
      squares = hn::MulAdd(x, x, squares);
    }
  }
  const Vec norms = hn::Sqrt(squares);
  count < lanes() ? store_part(norms, g.norms + o, count) : store(norms, g.norms + o);
}

// norms[o] = |w[o] + factor b[o] a|
template <typename T>
void dora_norm(const KernelContext& c) {
  const AdaptedWeight<T> g(c);
  if (c.attrs.integer_or("transposed", 0) != 0) {
    const int64_t step = lanes();
    for_blocks(c.team, g.outputs, step,
               [&](int64_t begin, int64_t) HWY_ATTR { norms_of_lanes(g, begin); });
    return;
  }
  for_blocks(c.team, g.outputs, rows_per_task(g.inputs * (g.rank + 1)),
             [&](int64_t begin, int64_t end) HWY_ATTR {
               for (int64_t o = begin; o < end; ++o) norm_of_row(g, o);
             });
}

// y = (c - 1) (base - bias) + c product, where c = m / norms
template <typename T>
void dora(const KernelContext& c) {
  const T *base = c.in[0].as<T>(), *product = c.in[1].as<T>(), *m = c.in[2].as<T>(),
          *norms = c.in[3].as<T>(), *bias = c.in.size() == 5 ? c.in[4].as<T>() : nullptr;
  T* y = c.out[0].as<T>();
  const int64_t width = c.in[0].dims[1];
  auto plain = [](Vec x, Vec p, Vec size, Vec norm) HWY_ATTR {
    const Vec factor = hn::Div(size, norm);
    return hn::MulAdd(factor, p, hn::Mul(hn::Sub(factor, hn::Set(Lanes(), 1.0f)), x));
  };
  auto biased = [=](Vec x, Vec p, Vec size, Vec norm, Vec b)
                    HWY_ATTR { return plain(hn::Sub(x, b), p, size, norm); };
  for_blocks(c.team, c.in[0].dims[0], rows_per_task(width),
             [=](int64_t begin, int64_t end) HWY_ATTR {
               for (int64_t e = begin * width; e < end * width; e += width) {
                 if (bias) {
                   map(0, width, y + e, biased, base + e, product + e, m, norms, bias);
                 } else {
                   map(0, width, y + e, plain, base + e, product + e, m, norms);
                 }
               }
             });
}

// dbase = (c - 1) dy, dproduct = c dy
template <typename T>
void dora_dx(const KernelContext& c) {
  const T *dy = c.in[0].as<T>(), *m = c.in[1].as<T>(), *norms = c.in[2].as<T>();
  T *dbase = c.out[0].as<T>(), *dproduct = c.out[1].as<T>();
  const int64_t width = c.in[0].dims[1];
  auto of_product = [](Vec g, Vec size, Vec norm)
                        HWY_ATTR { return hn::Mul(hn::Div(size, norm), g); };
  auto of_base = [](Vec g, Vec size, Vec norm) HWY_ATTR {
    return hn::Mul(hn::Sub(hn::Div(size, norm), hn::Set(Lanes(), 1.0f)), g);
  };
  for_blocks(c.team, c.in[0].dims[0], rows_per_task(width),
             [=](int64_t begin, int64_t end) HWY_ATTR {
               for (int64_t e = begin * width; e < end * width; e += width) {
                 map(0, width, dbase + e, of_base, dy + e, m, norms);
                 map(0, width, dproduct + e, of_product, dy + e, m, norms);
               }
             });
}

// dm = the column sums of dy (base - bias + product), divided by norms
template <typename T>
void dora_dm(const KernelContext& c) {
  const T *dy = c.in[0].as<T>(), *base = c.in[1].as<T>(), *product = c.in[2].as<T>(),
          *norms = c.in[3].as<T>(), *bias = c.in.size() == 5 ? c.in[4].as<T>() : nullptr;
  T *dm = c.out[0].as<T>(), *none = nullptr;
  const int64_t rows = c.in[0].dims[0], width = c.in[0].dims[1];
  for_blocks(c.team, width, kColumns, [=](int64_t begin, int64_t end) HWY_ATTR {
    for (int64_t k = begin; k < end; k += lanes()) {
      const int64_t count = std::min(lanes(), end - k);
      const Vec norm = load_up_to(norms + k, count),
                b = bias ? load_up_to(bias + k, count) : hn::Zero(Lanes());
      auto term = [=](int64_t, Vec g, Vec x, Vec p)
                      HWY_ATTR { return hn::Div(hn::Mul(g, hn::Add(hn::Sub(x, b), p)), norm); };
      auto nothing = [](int64_t, Vec g, Vec, Vec) HWY_ATTR { return g; };
      auto at = [=](int64_t r, const auto& f) HWY_ATTR {
        const int64_t e = r * width + k;
        return f(r, load_up_to(dy + e, count), load_up_to(base + e, count),
                 load_up_to(product + e, count));
      };
      sum_columns(rows, term, nothing, at, dm + k, none, count);
    }
  });
}

void add_dora(KernelRegistry& registry) {
  add_by_type(registry, "dora_norm", []<typename T>() { return dora_norm<T>; });
  add_by_type(registry, "dora", []<typename T>() { return dora<T>; });
  add_by_type(registry, "dora_dx", []<typename T>() { return dora_dx<T>; });
  add_by_type(registry, "dora_dm", []<typename T>() { return dora_dm<T>; });
}

}  // namespace ds::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
