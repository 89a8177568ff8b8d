#pragma once
#include <cstdint>
#include <vector>

#include "core/base/element_run.h"
#include "core/config/config.h"
#include "core/program/builder.h"
#include "zero/zero_plan.h"

namespace ds {

// The number of elements of a group that sub_group_size 0 selects.
inline constexpr int64_t kLeastUpdateGroup = 1 << 20;

// Returns sub_group_size rounded down to a multiple of kFileBlock elements, which fills whole file
// blocks in every element type, but at least kFileBlock. Returns kLeastUpdateGroup for 0. An update
// instruction covers at most this many elements, except as stretch_size() says.
int64_t update_group(const ZeroConfig& zero);

// A stretch of a bucket that one instruction updates.
struct Stretch {
  BucketId bucket;
  // First element and number of elements, counted from the start of the part that is updated.
  int64_t first = 0, count = 0;
  // The trained elements. Each run has the parameter group of its elements.
  std::vector<ElementRun> runs;

  // Returns whether every step updates all elements.
  bool whole() const;
  // Returns the access for a result that has one element for each element of the stretch. An update
  // that skips elements keeps the previous results of these elements.
  Access written() const { return whole() ? Access::write : Access::update; }
  // Restricts an instruction to `runs`.
  void limit(Instr& update) const;
};

// Returns the largest number of elements in a stretch of a bucket: update_group(), but a multiple
// of the granule if the optimizer needs norms.
int64_t stretch_size(const ZeroPlan& plan, const Config& config, BucketId bucket);

// Cuts elements [low, low + numel) of a bucket into stretches. Stretches without a trained element
// are left out.
std::vector<Stretch> stretches_of(const ZeroPlan& plan, const Config& config, BucketId bucket,
                                  int64_t low, int64_t numel);

// Returns the summed gradients of a stretch of this rank's part, in f32. Sums of another type are
// widened by an instruction that this function emits; with `bf16_too`, bf16 sums are returned as
// they are.
Operand gradient_of(ProgramBuilder& builder, const ZeroPlan& plan, const Stretch& stretch,
                    bool bf16_too = false);

}  // namespace ds
