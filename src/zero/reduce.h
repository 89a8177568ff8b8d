#pragma once
#include <compare>
#include <cstdint>
#include <vector>

#include "core/base/ids.h"
#include "core/program/program.h"
#include "zero/step_buffers.h"
#include "zero/zero_plan.h"

namespace ds {

// Inserts the reduction of each gradient bucket into the accumulators, after the bucket's last
// write. In the last micro-step the granule norms of this rank's part follow. With `overlap` a
// reduction starts only after the next gather of its segment, which is more urgent, and the kernels
// that read its sum are issued after the start of later reductions.
void insert_reductions(Program& program, const ZeroPlan& plan, bool overlap,
                       const StepBuffers& buffers);

// A micro-step of a step of `micros` micro-steps. A delegate host chooses that number in each step.
struct MicroOfStep {
  MicroId micro;
  int64_t micros = 1;
  auto operator<=>(const MicroOfStep&) const = default;
};

// Appends the reduction of one bucket of gradients after the last instruction, for a fragment of
// delegate mode.
void append_reduction(Program& program, const ZeroPlan& plan, BucketId bucket,
                      const MicroOfStep& at, BufferId grads);

// Returns the micro-step that stands for all those for which append_reduction() emits the same
// instructions, so that delegate mode needs few fragments.
MicroOfStep reduced_alike(const ZeroPlan& plan, const MicroOfStep& at);

// Returns the micro-steps that reduced_alike() returns for steps of plan.accumulation micro-steps
// and, unless sums are in tree order, for steps of any other number of micro-steps.
std::vector<MicroOfStep> reductions(const ZeroPlan& plan);

// Returns whether the gradients of a first micro-step may be written straight into the first
// accumulator, because their reduction would only copy them there.
bool takes_first_gradients(const ZeroPlan& plan, BucketId bucket);

// Returns the largest number of micro-steps that the accumulators can add up.
int64_t most_micro_steps(const ZeroPlan& plan);

}  // namespace ds
