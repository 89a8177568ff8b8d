#pragma once
#include <functional>
#include <string>

#include "core/base/attrs.h"
#include "core/base/dtype.h"
#include "core/device/thread_team.h"
#include "core/graph/ops/kept_logits.h"
#include "kernels/kernel.h"
#include "kernels/matrix_product.h"

namespace ds::cpu {

// The fused head, which computes and uses logits in f32 for one block of the vocabulary at a time.
// A family of matrix products passes its function `multiply`; all other work is done here. The
// operands are those of the ops linear_cross_entropy and linear_cross_entropy_dx.
using Multiply = void (*)(const MatrixProduct& product, ThreadTeam& team);
void linear_cross_entropy(const KernelContext& c, Multiply multiply);
void linear_cross_entropy_dx(const KernelContext& c, Multiply multiply);

// Returns the element type of a launch of either op.
inline DType head_dtype(const KernelQuery& query) {
  return query.op == "linear_cross_entropy" ? query.in[0] : query.in[1];
}

// Returns why a launch with kept logits is refused, or "". CPU plans keep the logits of a separate
// `linear` instead, so of the CPU families only the reference supports them.
inline std::string refuse_kept_logits(const KernelQuery& query) {
  return keeps_logits(query.attrs) ? "does not support kept logits" : "";
}
// Returns why a family refuses this launch, or "". `refuse_type` returns why its products refuse a
// type, or "".
inline std::string refuse_head(const KernelQuery& query, std::string (*refuse_type)(DType)) {
  const std::string kept = refuse_kept_logits(query);
  return kept.empty() ? refuse_type(head_dtype(query)) : kept;
}

// Call `each` with the shape of every product that a launch runs, once for each shape.
using EachShape = std::function<void(const MatrixShape&)>;
void list_head_products(const KernelContext& c, const EachShape& each);
void list_head_dx_products(const KernelContext& c, const EachShape& each);

}  // namespace ds::cpu
