#pragma once
#include <cstdint>
#include <vector>

#include "core/config/config.h"
#include "core/program/program.h"
#include "zero/policy.h"
#include "zero/step_buffers.h"

namespace ds {

// Micro-steps of a step that are written out, of which `repeated` stand for all that are not.
struct WrittenOut {
  int64_t micros = 0;
  int32_t repeated = 1;
};
// How a step of `accumulation` micro-steps may be written, cheapest first; the last way has all of
// them. written_out: PlanPrograms::written_out.
std::vector<WrittenOut> ways_to_write(int64_t accumulation, int64_t written_out);

struct FinishOptions {
  bool prefetch = false;  // overlap_comm, unless it did not fit memory_budget
  bool late_reuse =
      false;  // OffsetOptions, where device and host have memories of their own; likewise
  bool verify_passes = false;  // run the program verifier after the passes
  bool may_end_early =
      false;  // the program may be given up half-way: files are current after every write
  int32_t repeated = 1;  // micro-steps of a repeated stretch, where the program has not all of them
};
// The ordered list of passes that turns a linear order into a program that runs. False when the
// program has not all micro-steps of a step and nothing can be repeated in their place.
bool finish_program(Program& program, const ZeroPlan& plan, const Config& config,
                    const StepBuffers& buffers, const Machine& machine,
                    const FinishOptions& options);

}  // namespace ds
