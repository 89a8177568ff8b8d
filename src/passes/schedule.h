#pragma once
#include <cstdint>
#include <vector>

#include "core/program/program.h"

namespace ds {

// Limits of prefetch.
struct HoistOptions {
  int64_t prefetch_elements = 0;  // whole parameters that are gathered ahead; a larger one is not moved
  int64_t load_bytes = 0;         // host slots that loads for the host queue may fill ahead
  int64_t max_live_elements = 0;  // whole parameters that may live at once (partitioned buckets)
};

// Moves starts (all_gather of parameters, fetch, load) to before the consumer of an earlier start of the same
// kind, so that transfer i+1 runs under compute i: a gather at least one and at most four consumers ahead, a
// fetch one, a load two or, for the host queue, as many as load_bytes allows. Data, the limits and the order
// of each queue are kept, but gathers pass reductions.
void hoist(Program& program, const HoistOptions& options);

// The program has some of the micro-steps of a step (StepBuffers::grads); `missing` more are to come before
// the last. Repeats a stretch of `micros` micro-steps for them: false, and nothing has changed, when the
// middle of the program has none that can stand for more. Behind hoist.
bool repeat_micros(Program& program, int32_t missing, int32_t micros);

// Places: persistent buffers one after the other (the same for every program with the same buffers),
// transient ones by best fit over their lifetimes in issue order. Sets offsets and Program::arenas.
struct OffsetOptions {
  int64_t alignment = 64;
  int64_t file_alignment =
      kFileBlock;  // of file extents and of host buffers that files touch, begin and size
};
void assign_offsets(Program& program, const OffsetOptions& options);

// Waits: for each instruction the fewest earlier ones on other queues that cover every conflict on its
// physical bytes, including reuse of memory; and, as negative numbers, the saves of the program's previous
// run.
void insert_waits(Program& program);

// Whole-parameter elements of partitioned buckets live at each instruction (for reports and tests).
IdVector<InstrId, int64_t> live_parameters(const Program& program);
// Largest sum of live transient bytes of a tier over the program: no assignment of offsets can be smaller.
int64_t transient_lower_bound(const Program& program, Tier tier);

}  // namespace ds
