#include "core/program/cost.h"

#include <algorithm>

#include "core/graph/ops.h"

namespace ds {
namespace {

double bytes_of(const TensorType& type, int64_t n) {
  return static_cast<double>(type.shape.numel(n) * size_of(type.dtype));
}

double bytes_of(std::span<const TensorType> types, int64_t n) {
  double sum = 0;
  for (const TensorType& type : types) sum += bytes_of(type, n);
  return sum;
}

template <int kFlops>
double flops(const Attrs&) {
  return kFlops;
}
template <size_t kOutputs>
size_t updated(const Attrs&) {
  return kOutputs;
}
double accumulate_flops(const Attrs& attrs) { return static_cast<double>(attrs.integer("beta")); }
size_t accumulate_updated(const Attrs& attrs) { return static_cast<size_t>(attrs.integer("beta")); }
// The exact order of docs/reference/ops.md, counted.
double adamw_flops(const Attrs& attrs) { return attrs.integer("l2") != 0 ? 17 : 16; }
double sgd_flops(const Attrs& attrs) { return attrs.integer("nesterov") != 0 ? 9 : 7; }

// With an error: two sums and a difference, three products.
double quantize_flops(const Attrs& attrs) { return attrs.has("err_beta") ? 8 : 2; }
size_t quantize_updated(const Attrs& attrs) { return attrs.has("err_beta") ? 1 : 0; }
// Of a byte of codes, which is one element or two.
double dequantize_flops(const Attrs& attrs) { return 8 / static_cast<double>(attrs.integer("bits")); }
double dequantize_sum_flops(const Attrs& attrs) { return 2 * dequantize_flops(attrs); }

DType widest(std::span<const TensorType> types) {
  for (const TensorType& type : types) {
    if (type.dtype == DS_DTYPE_F64) return DS_DTYPE_F64;
  }
  return DS_DTYPE_F32;
}

// What products multiply: the type of the first operand that is no scalar.
DType factor_type(std::span<const TensorType> in) {
  for (const TensorType& type : in) {
    if (type.shape.rank() > 0) return type.dtype;
  }
  return in[0].dtype;
}

Cost op_cost(const OpDef& row, std::span<const TensorType> in, std::span<const TensorType> out,
             const Attrs& attrs, int64_t n) {
  double read = row.read_bytes ? row.read_bytes(in, attrs, n) : bytes_of(in, n);
  if (row.updates_last) out = out.first(out.size() - 1);  // some rows, which are small beside what is read
  return {row.flops(in, attrs, n), read + bytes_of(out, n), row.products ? factor_type(in) : widest(in)};
}

const InstructionCost* find_instruction(std::string_view name) {
  for (const InstructionCost& row : instruction_costs()) {
    if (row.name == name) return &row;
  }
  return nullptr;
}

}  // namespace

Cost& Cost::operator+=(const Cost& other) {
  flops += other.flops;
  bytes += other.bytes;
  return *this;
}

const std::vector<InstructionCost>& instruction_costs() {
  static const std::vector<InstructionCost> table{
      {"zero", flops<0>, updated<0>},
      {"accumulate", accumulate_flops, accumulate_updated},
      {"init_param", flops<0>, updated<0>},
      {"granule_norms", flops<2>, updated<0>},
      {"quantize", quantize_flops, quantize_updated},
      {"dequantize", dequantize_flops, updated<0>},
      {"dequantize_sum", dequantize_sum_flops, updated<0>},
      {"pack_rows", flops<0>, updated<0>, true},
      {"sum_rows", flops<1>, updated<0>},
      {"adamw", adamw_flops, updated<3>},
      {"sgd", sgd_flops, updated<2>},
  };
  return table;
}

Cost launch_cost(std::string_view name, std::span<const TensorType> in, std::span<const TensorType> out,
                 const Attrs& attrs, int64_t n) {
  if (const OpDef* row = find_op(name)) return op_cost(*row, in, out, attrs, n);
  Cost cost{0, bytes_of(in, n) + bytes_of(out, n), DS_DTYPE_F32};
  const InstructionCost* row = find_instruction(name);
  if (!row) return cost;
  if (!in.empty()) cost.flops = row->flops(attrs) * static_cast<double>(in[0].shape.numel(n));
  cost.bytes += bytes_of(out.first(std::min(out.size(), row->updated(attrs))), n);
  if (row->selects) cost.bytes += bytes_of(out[0], n) - bytes_of(in[0], n);
  return cost;
}

Cost instruction_cost(const Program& program, const Instr& instr, int64_t n) {
  std::vector<TensorType> in, out;
  for (const Operand& o : instr.operands) {
    if (program.buffers[static_cast<size_t>(o.buffer)].name == kScalarBlock) continue;
    (o.access == Access::read ? in : out).push_back(o.type);
  }
  return launch_cost(instr.op, in, out, instr.attrs, n);
}

}  // namespace ds
