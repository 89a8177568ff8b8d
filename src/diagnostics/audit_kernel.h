#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/base/attrs.h"
#include "core/base/element_run.h"
#include "core/base/group_scalars.h"
#include "core/device/scalars.h"
#include "core/program/program.h"
#include "kernels/kernel.h"

namespace ds {

// The result of the audit of one instruction.
struct Verdict {
  enum class How { bits, bound, unaudited };
  // How the instruction was compared: bit by bit, within a bound, or not at all.
  How how = How::bits;
  double error = 0, bound = 0;
  // The element with the largest share, or the reason of the verdict.
  std::string where;
  // Returns the error as a share of the bound. For a comparison of bits it is 0 or infinity.
  double share() const;
  bool passed() const { return share() <= 1; }
  // Replaces this verdict with `other` if `other` has a larger share, or if this verdict's `where`
  // is still empty.
  void keep_worse(Verdict other);

  // Returns a failed verdict with an infinite error, for this reason.
  static Verdict wrong(std::string reason);
  // Returns the verdict of an instruction that cannot be compared, for this reason.
  static Verdict unaudited(std::string reason);
};

// A tensor that owns its memory.
class AuditTensor {
 public:
  // Creates a tensor of the same shape whose bits are all 1, which is NaN in every floating type.
  AuditTensor(const TensorView& like, DType dtype);
  // Copies a tensor.
  explicit AuditTensor(const TensorView& like);
  // Returns a copy; if the elements have a floating type, they are converted to `dtype`.
  AuditTensor as(DType dtype) const;
  const TensorView& view() const { return view_; }

 private:
  struct alignas(64) Line {
    std::byte bytes[64];
  };
  std::unique_ptr<Line[]> lines_;
  TensorView view_;
};

// The record of one launch of a kernel: its inputs, and its outputs before and after the launch.
struct KernelRun {
  std::string op;
  const Attrs* attrs = nullptr;
  StepScalars scalars;
  int64_t leaf = 0;
  // The runs of elements of an update. Empty: the launch covers all elements.
  std::vector<ElementRun> parts;
  // The scalars of all parameter groups, to which `parts` refer.
  std::vector<GroupScalars> groups;
  std::vector<AuditTensor> in, before, after;
  // Returns the bytes of all tensors.
  size_t bytes() const;
};

// Repeats the launch with the reference kernel, on one thread, and compares the results. Operations
// with only one correct result must equal the reference bit by bit. For others, the reference runs
// in f64 on the same operands, and every element must be within kMostUnits units of
// kernels/accuracy.h. If an element is not, the reference also runs in f32 on operands that are
// each off by a rounding error, and its largest error is added to the unit. That is needed where
// terms cancel, as in the gradient of the bias of keys, which is 0 except for rounding: there,
// errors of correct kernels are not bounded by a share of the result. An operation for which
// kernels/accuracy.h has no bound is not audited.
Verdict judge_kernel(const KernelRegistry& reference, const KernelRun& run);

// Compares two tensors of the same type bit by bit; any two NaN are equal. `name` is the tensor's
// name in the verdict.
Verdict judge_bits(const TensorView& got, const TensorView& want, const std::string& name);

// Returns element e as f64; i64 values may be rounded.
double element_of(const TensorView& view, int64_t e);
int64_t bytes_of(const TensorView& view);

}  // namespace ds
