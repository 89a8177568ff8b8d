#pragma once
#include <string>
#include <vector>

#include "kernels/accuracy.h"
#include "kernels/kernel.h"
#include "support/interpret.h"

namespace ds::test {

// A graph op on concrete operands. `in` holds f64 or i32 values. Random values are exact in bf16,
// so that all element types see equal operands; statistics such as lse come from a forward pass in
// f64.
struct OpCase {
  std::string op;
  Attrs attrs;
  std::vector<Tensor> in;

  // Returns a description, such as "linear [7,5] [3,5] {...}".
  std::string label() const;
};

// Returns standard cases of every op: odd sizes, n not a multiple of seq, a single row, and n below
// seq.
std::vector<OpCase> op_cases();
// Returns larger cases for optimized kernels, with vector tails (widths around multiples of 16 and
// 64).
std::vector<OpCase> large_op_cases();

// Returns the operand types of a case in element type `dtype`: `dtype` itself, the type of
// statistics (f32, or f64 for f64), or i32.
std::vector<DType> input_types(const OpCase& c, DType dtype);
std::vector<TensorType> output_types(const OpCase& c, DType dtype);
// Returns "" if `impl` accepts the case in `dtype`, or else its reason for refusing.
std::string refusal(const KernelImpl& impl, const OpCase& c, DType dtype);
// Returns the outputs of `impl` on the operands rounded to `dtype`, with scalars.seed 7, step 3 and
// leaf 2.
std::vector<Tensor> run_case(const KernelImpl& impl, const OpCase& c, DType dtype,
                             ThreadTeam& team);

// The largest |got - want| over all outputs, in units of kernels/accuracy.h, where `want` comes
// from the f64 reference on the same rounded operands. A correct kernel stays below kMostUnits. NaN
// or infinity in `got` counts as an infinite error.
struct Deviation {
  double error = 0;
  // The place of that error, such as "output 0 element 17: got 1, want 2".
  std::string where;
};
Deviation deviation(const KernelImpl& impl, const OpCase& c, DType dtype, ThreadTeam& team);

// An instruction on concrete operands. `out` holds what update operands contain before the call.
struct InstructionCase {
  std::string op;
  Attrs attrs;
  std::vector<Tensor> in;
  std::vector<Tensor> out;
  StepScalars scalars = {};
  std::vector<ElementRun> runs = {};
};
std::vector<InstructionCase> instruction_cases();
std::vector<Tensor> run_case(const KernelImpl& impl, const InstructionCase& c, ThreadTeam& team);

}  // namespace ds::test
