#pragma once
// The shared pieces of the reference kernels, and their list. A reference kernel is a template over
// the element type T that reads like the formula: operands are widened to Wide<T>, and results are
// computed in Wide<T> and rounded once when they are stored. It runs on the calling thread, in
// index order; only init_param uses the whole team.
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <type_traits>

#include "core/base/dtype.h"
#include "core/base/error.h"
#include "kernels/by_type.h"
#include "kernels/kernel.h"

namespace ds::ref {

// The arithmetic type of elements T: f32 for f32, bf16 and f16, and f64 for f64.
template <typename T>
using Wide = std::conditional_t<std::is_same_v<T, double>, double, float>;

// Returns element i of p, widened.
template <typename T>
Wide<T> get(const T* p, int64_t i) {
  return static_cast<Wide<T>>(p[i]);
}

// Calls f with a value of the C++ type of `dtype`: f32, bf16, f16 or f64.
template <typename F>
void by_type(DType dtype, const F& f) {
  by_type_among<float, bf16, f16, double>("reference", dtype, f);
}

// Returns the calling thread's scratch as `count` elements of type A. Their contents are undefined.
template <typename A>
std::span<A> scratch_of(const KernelContext& c, int64_t count) {
  std::span<std::byte> bytes = c.team.scratch(0);
  ensure(static_cast<size_t>(count) * sizeof(A) <= bytes.size(),
         "scratch of {} bytes is too small for {} elements of {} bytes", bytes.size(), count,
         sizeof(A));
  return {reinterpret_cast<A*>(bytes.data()), static_cast<size_t>(count)};
}

// Returns the sum of the ranks' terms x in the order of a binary tree: neighbours are added first,
// and an odd last term is carried up.
inline float tree_sum(std::span<const float> x) {
  if (x.size() == 1) return x[0];
  size_t half = 1;
  while (half * 2 < x.size()) half *= 2;
  return tree_sum(x.first(half)) + tree_sum(x.subspan(half));
}

// y[e] = f(x[e], ...) for all elements of output y. f has one parameter for each input, one or two;
// all operands have type T.
template <typename T, typename F>
void map(const KernelContext& c, const F& f) {
  T* y = c.out[0].as<T>();
  for (int64_t e = 0; e < c.out[0].numel(); ++e) {
    auto x = [&](size_t i) { return get(c.in[i].as<T>(), e); };
    if constexpr (std::is_invocable_v<F, Wide<T>>) {
      y[e] = static_cast<T>(f(x(0)));
    } else {
      y[e] = static_cast<T>(f(x(0), x(1)));
    }
  }
}

// Registers `run` as the reference of `op`.
void add_kernel(KernelRegistry& registry, const char* op, KernelFn run);

// Registers a reference kernel that is a template over an element type. `operand` returns that type
// for a launch. Choose is the type of a lambda without captures whose operator()<T>() returns the
// function for elements of type T.
template <auto operand = in_type<0>, typename Choose>
void add_by_type(KernelRegistry& registry, const char* op, Choose) {
  add_kernel(registry, op, [](const KernelContext& c) {
    by_type(operand(c), [&](auto t) { Choose{}.template operator()<decltype(t)>()(c); });
  });
}

// The registrations of this folder, one for each file with kernels.
Registration add_embedding, add_step, add_position, add_last_row, add_linear,
    add_linear_cross_entropy, add_layer_norm, add_activation, add_relu, add_rms_norm, add_glu,
    add_mul, add_scale, add_softcap, add_rope, add_top_gates, add_scale_rows, add_load_balance,
    add_attention, add_cached_attention, add_add, add_dropout, add_softmax, add_cross_entropy,
    add_count_targets, add_mse, add_preference, add_dora, add_fill, add_cast, add_zero,
    add_accumulate, add_init_param, add_granule_norms, add_quantize, add_row_table, add_adamw,
    add_adamw_codes, add_sgd, add_lion, add_adagrad, add_lamb, add_muon, add_signs, add_momentum,
    add_frozen_adam, add_local_adam, add_frozen_lamb, add_top;

}  // namespace ds::ref
