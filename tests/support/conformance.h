#pragma once
#include <string>
#include <vector>

#include "kernels/accuracy.h"
#include "kernels/kernel.h"
#include "support/interpret.h"

namespace ds::test {

// One graph op on concrete operands. in: f64 or i32; random values are exact in bf16, so that all
// element types see the same operands (statistics such as lse come from a f64 forward run).
struct OpCase {
  std::string op;
  Attrs attrs;
  std::vector<Tensor> in;

  std::string label() const;  // "linear [7,5] [3,5] {...}"
};

// Standard cases of every op of the table: odd sizes, n not a multiple of seq, one row, n below
// seq.
std::vector<OpCase> op_cases();
// Larger ones with vector tails (widths around multiples of 16 and 64), for optimized kernels.
std::vector<OpCase> large_op_cases();

// Operand types of a case in element type T: T, the statistics' type (f32, or f64 for f64) or i32.
std::vector<DType> input_types(const OpCase& c, DType dtype);
std::vector<TensorType> output_types(const OpCase& c, DType dtype);
// Whether `impl` takes the case in `dtype`: "" or the reason why not.
std::string refusal(const KernelImpl& impl, const OpCase& c, DType dtype);
// Outputs of `impl` on the operands rounded to `dtype`; scalars.seed 7, step 3, leaf 2.
std::vector<Tensor> run_case(const KernelImpl& impl, const OpCase& c, DType dtype,
                             ThreadTeam& team);

// Largest |got - want| over all outputs in units of kernels/accuracy.h, where want is the f64
// reference on the same rounded operands. A correct kernel stays below kMostUnits; NaN or infinity
// in got count as infinite.
struct Deviation {
  double error = 0;
  std::string where;  // "output 0 element 17: got 1, want 2"
};
Deviation deviation(const KernelImpl& impl, const OpCase& c, DType dtype, ThreadTeam& team);

// An instruction on concrete operands; out holds what update operands contain before.
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
