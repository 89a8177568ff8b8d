#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "compile/plan.h"
#include "core/base/ids.h"
#include "core/base/shape.h"
#include "core/config/config.h"
#include "core/graph/graph.h"
#include "core/program/granules.h"
#include "core/program/mesh.h"
#include "core/program/program.h"
#include "zero/zero_plan.h"

namespace ds {

// One call of a delegate host within a step.
struct HostEvent {
  // `end` ends a micro-step. The other kinds lease parameters, release them or pass gradients.
  enum class Kind { gather = 0, release, grad_view, grad, end };
  Kind kind = Kind::gather;
  std::vector<ParamId> params;
  bool operator==(const HostEvent&) const = default;
};

// Compiles the plan of a delegate engine: the programs of every step (init, refresh, update) and
// the places of the host. The plan's memory also has room for any fragment.
Plan compile_delegate(const Config& config, const IdVector<ParamId, ParamSpec>& params,
                      const IdVector<ParamId, Shape>& shapes, int rank, const Mesh& mesh,
                      const Machine& machine);

// Compiles the plan of a delegate engine again with other parameters frozen, as recompile_plan()
// does.
Plan recompile_delegate(const Plan& plan, const Config& config, const Machine& machine,
                        const TrainedParams& trained);

// Returns the fragments that a step may need if it runs call by call: the gather of each
// partitioned bucket, and the reduction of each trained bucket in every micro-step whose reduction
// differs from those of all earlier micro-steps.
std::vector<ProgramKey> fragment_keys(const Plan& plan);
// Compiles one of these fragments.
Program make_fragment(const Plan& plan, const Config& config, const Machine& machine,
                      const ProgramKey& key);

// The calls of a step as a host made them, and their places in the program. The step is compiled by
// the passes of a native step, with an instruction for each call (Instr::event). At each of these
// instructions, every reduction either has not begun or has ended, so the host may leave the order
// there: reduced sums remain valid, and gradients that are not reduced yet are where the host has
// put them.
//
// If all micro-steps except the first and the last have the same calls, a long step has a stretch
// of micro-steps that is repeated (passes/repeat.cpp). Only the calls of round 0 are written out.
// The same calls of later rounds have higher numbers.
struct RecordedOrder {
  // The calls of all micro-steps.
  IdVector<EventId, HostEvent> events;
  // The instruction of each call. Its id does not exist for the end of a micro-step.
  IdVector<EventId, Position> event_at;
  // The position up to which the program runs at each call.
  IdVector<EventId, Position> event_end;
  // For each micro-step that is written out, one past the last instruction of each bucket's
  // reduction in round 0. The id does not exist if the bucket is not reduced.
  IdVector<MicroId, IdVector<BucketId, InstrId>> reduced_at;
  // Returns the position after the last instruction of the reduction of a bucket, or the start of
  // the program if the bucket is not reduced.
  Position reduced(const Program& program, MicroId micro, BucketId bucket) const;
};

// A compiled recorded step.
struct RecordedStep {
  Program program;
  RecordedOrder order;
  // The position of the program's choices in choices_by_memory().
  size_t choice = 0;
};

// Compiles a step from the calls that a host made. `beside` holds the transient bytes, by tier,
// that remain in use for other purposes while the step runs. `written_out` and `first_choice` are
// as in PlanPrograms. Returns nothing if no choice fits memory_budget.
std::optional<RecordedStep> compile_recorded(const Plan& plan, const Config& config,
                                             const Machine& machine,
                                             IdVector<EventId, HostEvent> events,
                                             std::span<const int64_t, 3> beside,
                                             int64_t written_out, size_t first_choice = 0);

}  // namespace ds
