#pragma once
#include <cstdint>
#include <vector>

#include "core/config/config.h"
#include "core/program/choices.h"
#include "core/program/program.h"
#include "zero/step_buffers.h"
#include "zero/zero_plan.h"

namespace ds {

// A way to write a step: `micros` micro-steps are written out, and a stretch of `repeated` of them
// is repeated for all micro-steps that are not written out.
struct WrittenOut {
  int64_t micros = 0;
  int32_t repeated = 1;
};
// Returns the ways to write a step of `accumulation` micro-steps, the cheapest first. The last way
// writes out all micro-steps. `written_out` is PlanPrograms::written_out.
std::vector<WrittenOut> ways_to_write(int64_t accumulation, int64_t written_out);

struct FinishOptions {
  // Only prefetch and late_reuse are read; recomputation is already in the graph.
  Choices choices;
  // Whether to run the program verifier between and after the passes.
  bool verify_passes = false;
  // Whether a run of the program may be abandoned midway, so that files must be current after every
  // write.
  bool may_end_early = false;
  // The number of micro-steps in the repeated stretch, if not all micro-steps are written out.
  int32_t repeated = 1;
};

// Runs the list of passes that turns a linear order into a complete program. Returns false if some
// micro-steps are not written out and no stretch of the program can be repeated in their place.
bool finish_program(Program& program, const ZeroPlan& plan, const Config& config,
                    const StepBuffers& buffers, const Machine& machine,
                    const FinishOptions& options);

}  // namespace ds
