// Problem: benches and `libds profile` divide measured times by the work of an instruction, so its
// work must be a closed form of its types, attributes and n. An operation of the graph has its own
// formulas: OpDef::flops, and OpDef::read_bytes if it reads only a part of its inputs. With
// `updates_last`, its last output is not counted. For every other instruction, flops are the row's
// flops per element times the elements of the first operand. Each operand's bytes count once, with
// two exceptions: an output that is also read counts twice, and a row with `selects` reads only as
// much of its first operand as its first output holds.
#include "core/program/cost.h"

#include <algorithm>
#include <cstdint>

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

DType widest(std::span<const TensorType> types) {
  for (const TensorType& type : types) {
    if (type.dtype == DS_DTYPE_F64) return DS_DTYPE_F64;
  }
  return DS_DTYPE_F32;
}

// Returns the type of the factors of a product: the type of the first operand that has a dimension.
DType factor_type(std::span<const TensorType> in) {
  for (const TensorType& type : in) {
    if (type.shape.rank() > 0) return type.dtype;
  }
  return in[0].dtype;
}

Cost op_cost(const OpDef& row, std::span<const TensorType> in, std::span<const TensorType> out,
             const Attrs& attrs, int64_t n) {
  double read = row.read_bytes ? row.read_bytes(in, attrs, n) : bytes_of(in, n);
  if (row.updates_last)
    // Only a few rows of the last output are updated, which is little compared with the bytes that
    // are read.
    out = out.first(out.size() - 1);
  return {row.flops(in, attrs, n), read + bytes_of(out, n),
          row.products ? factor_type(in) : widest(in)};
}

// Returns the bytes of outputs that are also read. A sum reads its output only if attribute `beta`
// is not 0.
double updated_bytes(const InstrDef& row, size_t inputs, std::span<const TensorType> out,
                     const Attrs& attrs, int64_t n) {
  auto scalars = std::count_if(row.operands.begin(), row.operands.end(),
                               [](const OperandRule& rule) { return rule.role == Role::scalars; });
  inputs += static_cast<size_t>(scalars);
  std::vector<OperandRule> rules = operand_rules(row, inputs + out.size());
  double bytes = 0;
  for (size_t i = 0; i < out.size(); ++i) {
    const OperandRule& rule = rules[inputs + i];
    bool added_to = rule.role == Role::sum && attrs.integer("beta") != 0;
    if (rule.access == Access::update || added_to) bytes += bytes_of(out[i], n);
  }
  return bytes;
}

}  // namespace

Cost& Cost::operator+=(const Cost& other) {
  flops += other.flops;
  bytes += other.bytes;
  return *this;
}

Cost launch_cost(const InstrDef& row, std::span<const TensorType> in,
                 std::span<const TensorType> out, const Attrs& attrs, int64_t n) {
  if (row.graph) return op_cost(*row.graph, in, out, attrs, n);
  Cost cost{0, bytes_of(in, n) + bytes_of(out, n), DS_DTYPE_F32};
  if (!row.flops) return cost;
  if (!in.empty()) cost.flops = row.flops(attrs) * static_cast<double>(in[0].shape.numel(n));
  cost.bytes += updated_bytes(row, in.size(), out, attrs, n);
  // The instruction reads only as much of its first operand as its first output holds.
  if (row.selects) cost.bytes += bytes_of(out[0], n) - bytes_of(in[0], n);
  return cost;
}

Cost instruction_cost(const Program& program, const Instr& instr, int64_t n) {
  std::vector<TensorType> in, out;
  for (const Operand& o : instr.operands) {
    if (program.buffers[o.buffer].holds == Holds::scalars) continue;
    (o.access == Access::read ? in : out).push_back(o.type);
  }
  return launch_cost(*instr.def, in, out, instr.attrs, n);
}

}  // namespace ds
