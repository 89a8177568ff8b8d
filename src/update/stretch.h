#pragma once
#include <cstdint>
#include <vector>

#include "core/base/element_run.h"
#include "core/config/config.h"
#include "core/program/builder.h"
#include "zero/zero_plan.h"

namespace ds {

// The size that sub_group_size 0 stands for, which needs the least memory: a smaller group is not
// worth an instruction.
inline constexpr int64_t kLeastUpdateGroup = 1 << 20;

// Returns the largest number of elements that one update instruction covers: sub_group_size,
// rounded down to file blocks that are whole in every element type.
int64_t update_group(const ZeroConfig& zero);

// A stretch of a bucket that one instruction updates.
struct Stretch {
  BucketId bucket;
  // First element and number of elements, counted from the start of the part that is updated.
  int64_t first = 0, count = 0;
  // The trained elements. Each run has the parameter group of its elements.
  std::vector<ElementRun> runs;

  // Returns whether all elements are trained.
  bool whole() const;
  // Returns how an update accesses a result with one element for each element of the stretch. An
  // update that skips some elements does not write the whole result.
  Access written() const { return whole() ? Access::write : Access::update; }
  // Restricts an instruction to `runs`.
  void limit(Instr& update) const;
};

// Returns the largest number of elements in a stretch of a bucket.
int64_t stretch_size(const ZeroPlan& plan, const Config& config, BucketId bucket);

// Cuts elements [low, low + numel) of a bucket into stretches. Stretches without a trained element
// are left out.
std::vector<Stretch> stretches_of(const ZeroPlan& plan, const Config& config, BucketId bucket,
                                  int64_t low, int64_t numel);

// Returns the sums of gradients of a stretch of this rank's part as an update reads them: in f32,
// or in bf16 if bf16_too. Emits an instruction that widens sums of another type.
Operand gradient_of(ProgramBuilder& builder, const ZeroPlan& plan, const Stretch& stretch,
                    bool bf16_too = false);

}  // namespace ds
