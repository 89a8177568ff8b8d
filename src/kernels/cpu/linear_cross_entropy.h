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

// The fused head: logits are made, used and forgotten by blocks of the vocabulary, in f32. A family
// of matrix products brings `multiply`; the rest is here. Operands are those of the ops, f32 or
// bf16.
using Multiply = void (*)(const MatrixProduct& product, ThreadTeam& team);
void linear_cross_entropy(const KernelContext& c, Multiply multiply);
void linear_cross_entropy_dx(const KernelContext& c, Multiply multiply);

// Element type of a launch of either op.
inline DType head_dtype(const KernelQuery& query) {
  return query.op == "linear_cross_entropy" ? query.in[0] : query.in[1];
}

// Where logits are kept, the reference kernel is the only one here: CPU plans keep those of
// `linear`.
inline std::string refuse_kept_logits(const KernelQuery& query) {
  return keeps_logits(query.attrs) ? "logits that are kept" : "";
}
// Of a family whose products refuse types.
inline std::string refuse_head(const KernelQuery& query, std::string (*refuse_type)(DType)) {
  const std::string kept = refuse_kept_logits(query);
  return kept.empty() ? refuse_type(head_dtype(query)) : kept;
}

// The shape of every product that a launch runs, most of them once for many.
using EachShape = std::function<void(const MatrixShape&)>;
void list_head_products(const KernelContext& c, const EachShape& each);
void list_head_dx_products(const KernelContext& c, const EachShape& each);

}  // namespace ds::cpu
