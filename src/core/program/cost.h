#pragma once
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/program/program.h"

namespace ds {

// What one launch computes and the least it moves: every byte that it needs read once, every byte that it
// makes written once, as if nothing were in a cache.
struct Cost {
  double flops = 0;
  double bytes = 0;
  DType arithmetic =
      DS_DTYPE_F32;  // whose rate bounds flops: the operands' type for products of operands, else f32 or f64
  Cost& operator+=(const Cost& other);  // of equal arithmetic
};

// What programs run beside graph ops, by kernel: a row for each instruction of docs/reference/ops.md.
struct InstructionCost {
  std::string name;
  double (*flops)(const Attrs& attrs);    // of an element of the first operand
  size_t (*updated)(const Attrs& attrs);  // leading outputs that are read, too
  bool selects = false;                   // reads no more of its first operand than its first output holds
};
const std::vector<InstructionCost>& instruction_costs();

// Cost of a graph op, an instruction of docs/reference/ops.md, or else a move (collectives, copies, files: no
// flops) at extent n. in and out: types in the order of docs/reference/ops.md.
Cost launch_cost(std::string_view op, std::span<const TensorType> in, std::span<const TensorType> out,
                 const Attrs& attrs, int64_t n);
// The same of an instruction of a program, at n of its micro-step.
Cost instruction_cost(const Program& program, const Instr& instr, int64_t n);

}  // namespace ds
