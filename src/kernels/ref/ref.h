#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

#include "core/base/dtype.h"
#include "core/base/error.h"
#include "kernels/by_type.h"
#include "kernels/kernel.h"

namespace ds::ref {

// Arithmetic type of elements T: f32 for f32, bf16 and f16, f64 for f64.
template <typename T>
using Wide = std::conditional_t<std::is_same_v<T, double>, double, float>;

// Element i of p, widened.
template <typename T>
Wide<T> get(const T* p, int64_t i) {
  return static_cast<Wide<T>>(p[i]);
}

// Calls f with a value of the C++ type of `dtype`: f32, bf16, f16 or f64.
template <typename F>
void by_type(DType dtype, const F& f) {
  by_type_among<float, bf16, f16, double>("reference", dtype, f);
}

// The first `count` elements of type A of the caller's scratch; contents are undefined.
template <typename A>
std::span<A> scratch_of(const KernelContext& c, int64_t count) {
  std::span<std::byte> bytes = c.team.scratch(0);
  ensure(static_cast<size_t>(count) * sizeof(A) <= bytes.size(),
         "scratch of {} bytes is too small for {} elements of {} bytes", bytes.size(), count,
         sizeof(A));
  return {reinterpret_cast<A*>(bytes.data()), static_cast<size_t>(count)};
}

// The sum over ranks: neighbours are added up first, an odd last one is carried up.
inline float tree_sum(std::span<const float> x) {
  if (x.size() == 1) return x[0];
  size_t half = 1;
  while (half * 2 < x.size()) half *= 2;
  return tree_sum(x.first(half)) + tree_sum(x.subspan(half));
}

// Registers `run` as the reference of `op`.
void add_kernel(KernelRegistry& registry, std::string op, KernelFn run);

// One per file of this folder.
void add_embedding(KernelRegistry& registry);
void add_step(KernelRegistry& registry);
void add_position(KernelRegistry& registry);
void add_last_row(KernelRegistry& registry);
void add_linear(KernelRegistry& registry);
void add_linear_cross_entropy(KernelRegistry& registry);
void add_layer_norm(KernelRegistry& registry);
void add_activation(KernelRegistry& registry);
void add_relu(KernelRegistry& registry);
void add_rms_norm(KernelRegistry& registry);
void add_glu(KernelRegistry& registry);
void add_mul(KernelRegistry& registry);
void add_scale(KernelRegistry& registry);
void add_softcap(KernelRegistry& registry);
void add_rope(KernelRegistry& registry);
void add_top_gates(KernelRegistry& registry);
void add_scale_rows(KernelRegistry& registry);
void add_load_balance(KernelRegistry& registry);
void add_attention(KernelRegistry& registry);
void add_cached_attention(KernelRegistry& registry);
void add_add(KernelRegistry& registry);
void add_dropout(KernelRegistry& registry);
void add_softmax(KernelRegistry& registry);
void add_cross_entropy(KernelRegistry& registry);
void add_count_targets(KernelRegistry& registry);
void add_mse(KernelRegistry& registry);
void add_fill(KernelRegistry& registry);
void add_cast(KernelRegistry& registry);
void add_zero(KernelRegistry& registry);
void add_accumulate(KernelRegistry& registry);
void add_init_param(KernelRegistry& registry);
void add_granule_norms(KernelRegistry& registry);
void add_quantize(KernelRegistry& registry);
void add_row_table(KernelRegistry& registry);
void add_adamw(KernelRegistry& registry);
void add_adamw_codes(KernelRegistry& registry);
void add_sgd(KernelRegistry& registry);
void add_lion(KernelRegistry& registry);
void add_adagrad(KernelRegistry& registry);
void add_lamb(KernelRegistry& registry);
void add_muon(KernelRegistry& registry);
void add_signs(KernelRegistry& registry);
void add_momentum(KernelRegistry& registry);
void add_frozen_adam(KernelRegistry& registry);
void add_local_adam(KernelRegistry& registry);
void add_frozen_lamb(KernelRegistry& registry);
void add_top(KernelRegistry& registry);

}  // namespace ds::ref
