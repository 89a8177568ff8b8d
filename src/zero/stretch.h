#pragma once
#include <cstdint>
#include <vector>

#include "core/base/element_run.h"
#include "core/config/config.h"
#include "core/program/builder.h"
#include "zero/policy.h"

namespace ds {

// What sub_group_size 0, which asks for the least memory, stands for: fewer elements are not worth
// an instruction.
inline constexpr int64_t kLeastUpdateGroup = 1 << 20;

// Elements that one update instruction covers at most: sub_group_size in whole file blocks of every
// element type.
int64_t update_group(const ZeroConfig& zero);

// A stretch of a bucket that one instruction updates.
struct Stretch {
  BucketId bucket;
  int64_t first = 0, count = 0;  // elements, counted from where the updated part begins
  std::vector<ElementRun> runs;  // what is trained of it, and of which group of parameters

  bool whole() const;
  // What an update does to a result of which each element is one of the stretch.
  Access written() const { return whole() ? Access::write : Access::update; }
  // Has an instruction update no more than `runs`.
  void limit(Instr& update) const;
};

// The most elements of a stretch of a bucket.
int64_t stretch_size(const ZeroPlan& plan, const Config& config, BucketId bucket);

// The stretches of elements [low, low + numel) of a bucket of which any is trained.
std::vector<Stretch> stretches_of(const ZeroPlan& plan, const Config& config, BucketId bucket,
                                  int64_t low, int64_t numel);

// The sums of gradients of a stretch of this rank's part, as an update reads them: f32, or bf16
// where bf16_too. Those of another type are widened, beside the update.
Operand gradient_of(ProgramBuilder& builder, const ZeroPlan& plan, const Stretch& stretch,
                    bool bf16_too = false);

}  // namespace ds
