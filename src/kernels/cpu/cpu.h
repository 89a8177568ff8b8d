#pragma once
#include <algorithm>
#include <cstdint>
#include <functional>
#include <string>

#include "core/base/error.h"
#include "core/base/round.h"
#include "kernels/by_type.h"
#include "kernels/kernel.h"

namespace ds::cpu {

// Elements of one task of an element-wise kernel: fixed, and a multiple of every vector width, so
// that tails are where they are on any machine.
constexpr int64_t kBlock = 16384;

// Calls task(index, thread) for every index in [0, count) on the team. Passes the task by
// reference: a std::function that holds a large lambda would allocate.
template <typename Task>
void for_tasks(ThreadTeam& team, int64_t count, const Task& task) {
  team.parallel_for(count, std::cref(task));
}

// Calls f(begin, end) for the pieces of [0, count) of `block` elements each, as tasks of the team.
template <typename F>
void for_blocks(ThreadTeam& team, int64_t count, int64_t block, const F& f) {
  for_tasks(team, ceil_div(count, block),
            [&](int64_t task, int) { f(task * block, std::min(count, (task + 1) * block)); });
}

// Rows of `width` elements that make about kBlock elements.
inline int64_t rows_per_task(int64_t width) {
  return std::max<int64_t>(1, kBlock / std::max<int64_t>(1, width));
}

// Calls f with a value of the C++ type of `dtype`: f32, bf16 or f16.
template <typename F>
void by_type(DType dtype, const F& f) {
  by_type_among<float, bf16, f16>("cpu", dtype, f);
}

// Registers `run` as family "cpu" of `op`: every operand is f32, bf16, f16 or i32 (of sums: f64
// too).
void add_kernel(KernelRegistry& registry, std::string op, KernelFn run);

// One per file of this folder.
void add_embedding(KernelRegistry& registry);
void add_position(KernelRegistry& registry);
void add_linear(KernelRegistry& registry);
void add_linear_cross_entropy(KernelRegistry& registry);
void add_linear_db(KernelRegistry& registry);
void add_layer_norm(KernelRegistry& registry);
void add_activation(KernelRegistry& registry);
void add_rms_norm(KernelRegistry& registry);
void add_glu(KernelRegistry& registry);
void add_mul(KernelRegistry& registry);
void add_scale(KernelRegistry& registry);
void add_softcap(KernelRegistry& registry);
void add_rope(KernelRegistry& registry);
void add_scale_rows(KernelRegistry& registry);
void add_relu(KernelRegistry& registry);
void add_attention(KernelRegistry& registry);
void add_cached_attention(KernelRegistry& registry);
void add_attention_dx(KernelRegistry& registry);
void add_add(KernelRegistry& registry);
void add_dropout(KernelRegistry& registry);
void add_softmax(KernelRegistry& registry);
void add_cross_entropy(KernelRegistry& registry);
void add_mse(KernelRegistry& registry);
void add_cast(KernelRegistry& registry);
void add_zero(KernelRegistry& registry);
void add_accumulate(KernelRegistry& registry);
void add_granule_norms(KernelRegistry& registry);
void add_step(KernelRegistry& registry);
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

}  // namespace ds::cpu
