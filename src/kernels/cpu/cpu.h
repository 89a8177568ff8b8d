#pragma once
// The division of work into tasks, and the registration of the kernels of this folder.
//
// Most files of this folder are compiled once for each instruction set of targets.h:
// foreach_target.h includes the file again with another HWY_NAMESPACE and other compiler options.
// Code of such a file that must exist only once is in the part under `#if HWY_ONCE`. register.cpp
// picks the best set of the machine at run time (kernel_facts.h limits it).
#include <algorithm>
#include <cstdint>
#include <functional>
#include <string>

#include "core/base/error.h"
#include "core/base/round.h"
#include "kernels/by_type.h"
#include "kernels/kernel.h"

namespace ds::cpu {

// The number of elements in one task of an elementwise kernel. It is a multiple of every vector
// width, so that only the last task may end with a part of a vector.
constexpr int64_t kBlock = 16384;

// Calls task(index, thread) for every index in [0, count) on the team. The task is passed by
// reference, because a std::function that holds a large lambda would allocate.
template <typename Task>
void for_tasks(ThreadTeam& team, int64_t count, const Task& task) {
  team.parallel_for(count, std::cref(task));
}

// Calls f(begin, end) for the pieces of [0, count), as tasks of the team. Each piece has `block`
// elements; the last may have fewer.
template <typename F>
void for_blocks(ThreadTeam& team, int64_t count, int64_t block, const F& f) {
  for_tasks(team, ceil_div(count, block),
            [&](int64_t task, int) { f(task * block, std::min(count, (task + 1) * block)); });
}

// Returns the number of rows of `width` elements that together have about kBlock elements.
inline int64_t rows_per_task(int64_t width) {
  return std::max<int64_t>(1, kBlock / std::max<int64_t>(1, width));
}

// Calls f with a value of the C++ type of `dtype`: f32, bf16 or f16.
template <typename F>
void by_type(DType dtype, const F& f) {
  by_type_among<float, bf16, f16>("cpu", dtype, f);
}

// Registers `run` as the kernel of family "cpu" for `op`. The kernel refuses f64 operands, except
// for the f64 sums of some instructions, and kept logits.
void add_kernel(KernelRegistry& registry, const char* op, KernelFn run);

// Registers a kernel that is a template over an element type. `operand` returns that type for a
// launch. Choose is the type of a lambda without captures whose operator()<T>() returns the
// function for elements of type T.
template <auto operand = in_type<0>, typename Choose>
void add_by_type(KernelRegistry& registry, const char* op, Choose) {
  add_kernel(registry, op, [](const KernelContext& c) {
    by_type(operand(c), [&](auto t) { Choose{}.template operator()<decltype(t)>()(c); });
  });
}

// The registrations of this folder that exist only once, not once per instruction set.
Registration add_embedding, add_linear, add_linear_cross_entropy, add_row_table, add_step, add_zero;

}  // namespace ds::cpu
