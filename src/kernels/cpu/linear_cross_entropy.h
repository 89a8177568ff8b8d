#pragma once
#include <functional>
#include <string>

#include "core/base/attrs.h"
#include "core/base/dtype.h"
#include "core/device/thread_team.h"
#include "kernels/kernel.h"
#include "kernels/matrix_product.h"

namespace ds::cpu {

// The fused head: logits are made, used and forgotten by blocks of the vocabulary, in f32. A family of matrix
// products brings `multiply`; the rest is here. Operands are those of the ops, f32 or bf16.
using Multiply = void (*)(const MatrixProduct& product, ThreadTeam& team);
void linear_cross_entropy(const KernelContext& c, Multiply multiply);
void linear_cross_entropy_dx(const KernelContext& c, Multiply multiply);

// Element type of a launch of either op.
inline DType head_dtype(const KernelQuery& query) {
  return query.op == "linear_cross_entropy" ? query.in[0] : query.in[1];
}

// Where logits are kept, the reference kernel is the only one here: CPU plans keep those of `linear`.
inline std::string refuse_kept_logits(const KernelQuery& query) {
  return query.attrs.integer_or("kept", 0) == 0 ? "" : "logits that are kept";
}

// The shape of every product that a launch runs, most of them once for many.
using EachShape = std::function<void(const MatrixShape&)>;
void list_head_products(const KernelContext& c, const EachShape& each);
void list_head_dx_products(const KernelContext& c, const EachShape& each);

}  // namespace ds::cpu
