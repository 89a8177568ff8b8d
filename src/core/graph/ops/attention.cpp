#include "core/base/error.h"
#include "core/graph/ops/rules.h"

namespace ds {
namespace {

using Types = std::vector<TensorType>;
using In = std::span<const TensorType>;

// Width C of one of q, k, v in rows of 3C; checks that `heads` divides it.
int64_t attention_width(const OperandCheck& check, std::string_view op, const TensorType& qkv,
                        const Attrs& attrs) {
  int64_t heads = check.positive(attrs, "heads");
  check.positive(attrs, "seq");
  int64_t columns = qkv.shape[1].extent;
  require(columns % (3 * heads) == 0,
          "{}: operand 'qkv' must have a multiple of 3*heads = {} columns, got {}", op, 3 * heads,
          qkv.text());
  return columns / 3;
}

Types infer_attention(In in, const Attrs& attrs) {
  OperandCheck check("attention", {"qkv"}, in);
  check.matrix(0);
  int64_t width = attention_width(check, "attention", in[0], attrs);
  Dim rows = in[0].shape[0];
  return {{in[0].dtype, {rows, width}}, {wide_type(in[0].dtype), {attrs.integer("heads"), rows}}};
}

Types infer_attention_dx(In in, const Attrs& attrs) {
  OperandCheck check("attention_dx", {"dy", "qkv", "y", "lse"}, in);
  check.matrix(0);
  check.matrix(1);
  int64_t width = attention_width(check, "attention_dx", in[1], attrs);
  Dim rows = in[1].shape[0];
  TensorType y{in[1].dtype, {rows, width}};
  check.equal(0, y);
  check.equal(2, y);
  check.equal(3, {wide_type(in[1].dtype), {attrs.integer("heads"), rows}});
  return {in[1]};
}

std::vector<ValueId> attention_backward(BackwardContext& c) {
  return {c.emit("attention_dx", {c.first_grad(), c.node.in[0], c.node.out[0], c.node.out[1]}, c.node.attrs,
                 {0})};
}

// Causal: half of seq columns a row on average; q k^T and p v forward, five products backward.
double causal_flops(int64_t products, const TensorType& qkv, const Attrs& attrs, int64_t n) {
  double width = static_cast<double>(qkv.shape[1].extent) / 3;
  double columns = (static_cast<double>(attrs.integer("seq")) + 1) / 2;
  double rows = static_cast<double>(qkv.shape[0].symbolic ? n : qkv.shape[0].extent);
  return 2.0 * static_cast<double>(products) * rows * columns * width;
}
double attention_flops(In in, const Attrs& attrs, int64_t n) { return causal_flops(2, in[0], attrs, n); }
double attention_dx_flops(In in, const Attrs& attrs, int64_t n) { return causal_flops(5, in[1], attrs, n); }

}  // namespace

void add_attention_ops(std::vector<OpDef>& table) {
  table.push_back(
      {"attention", 1, 1, {"heads", "seq"}, infer_attention, attention_backward, attention_flops});
  table.push_back({"attention_dx", 4, 4, {"heads", "seq"}, infer_attention_dx, {}, attention_dx_flops});
}

}  // namespace ds
