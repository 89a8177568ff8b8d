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

// What an audit says of one instruction.
struct Verdict {
  enum class How { bits, bound, unaudited };
  How how = How::bits;  // compared bit by bit, within a bound, or not at all
  double error = 0, bound = 0;
  std::string where;  // the element with the largest share, or what is wrong
  // Of the bound; with bits 0 or infinity.
  double share() const;
  bool passed() const { return share() <= 1; }
  void keep_worse(
      Verdict other);  // takes it over where its share is larger, or this one says nothing yet

  static Verdict wrong(std::string reason);  // infinitely
  static Verdict unaudited(std::string reason);
};

// A tensor with memory of its own.
class AuditTensor {
 public:
  AuditTensor(const TensorView& like, DType dtype);  // all bits 1: NaN in every floating type
  explicit AuditTensor(const TensorView& like);      // a copy
  AuditTensor as(DType dtype) const;                 // floating elements in another floating type
  const TensorView& view() const { return view_; }

 private:
  struct alignas(64) Line {
    std::byte bytes[64];
  };
  std::unique_ptr<Line[]> lines_;
  TensorView view_;
};

// One launch of a kernel, as it was: its inputs, and its outputs before and after.
struct KernelRun {
  std::string op;
  const Attrs* attrs = nullptr;
  StepScalars scalars;
  int64_t leaf = 0;
  std::vector<ElementRun> parts;     // of an update of some elements; none: of all
  std::vector<GroupScalars> groups;  // of parts
  std::vector<AuditTensor> in, before, after;
  size_t bytes() const;
};

// Runs it again with `reference`, alone. Operations with one result must equal the reference in
// their own types. Of others the reference runs in f64 on the same operands, and every element must
// lie within kMostUnits units of kernels/accuracy.h. Where some do not, the reference also runs in
// f32 on operands that are off by a rounding each, and the most that it is off itself is added to
// the unit: where terms cancel, as in the gradient of a bias of keys, which is 0 but for rounding,
// correct kernels lose more than a share of the result.
Verdict judge_kernel(const KernelRegistry& reference, const KernelRun& run);

// Whether two tensors of one type have the same bits; two NaN count as the same. `name`: of the
// tensor.
Verdict judge_bits(const TensorView& got, const TensorView& want, const std::string& name);

double element_of(const TensorView& view, int64_t e);
int64_t bytes_of(const TensorView& view);

}  // namespace ds
