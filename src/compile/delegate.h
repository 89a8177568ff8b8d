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
  // `end` ends a micro-step; the others are the calls that lease parameters, release them or pass
  // gradients.
  enum class Kind { gather = 0, release, grad_view, grad, end };
  Kind kind = Kind::gather;
  std::vector<ParamId> params;
  bool operator==(const HostEvent&) const = default;
};

// Compiles the plan of a delegate engine: the programs that every step needs (init, refresh,
// update) and the places of the host. Its memory has room for any fragment, too.
Plan compile_delegate(const Config& config, const IdVector<ParamId, ParamSpec>& params,
                      const IdVector<ParamId, Shape>& shapes, int rank, const Mesh& mesh,
                      const Machine& machine);

// Compiles such a plan again with other parameters frozen; see recompile_plan().
Plan recompile_delegate(const Plan& plan, const Config& config, const Machine& machine,
                        const TrainedParams& trained);

// Returns the fragments that a step may need if it runs call by call: the gather of each bucket,
// and the reduction of each bucket in each of reductions().
std::vector<ProgramKey> fragment_keys(const Plan& plan);
// Compiles one of these fragments.
Program make_fragment(const Plan& plan, const Config& config, const Machine& machine,
                      const ProgramKey& key);

// The order of a step as a host made it. The step is compiled by the passes of a native step, with
// a lease, grad or release instruction (attribute `event`) where the host runs. Whenever the host
// runs, every reduction either has not begun or has ended, so the step can be left there: sums that
// are reduced remain valid, and gradients that are not reduced yet are where the host has put them.
//
// If all micro-steps but the first and the last have the same calls, a long step has one of them
// written out and repeated (passes/repeat.cpp). The calls of round r then have higher numbers than
// those that are written out.
struct RecordedOrder {
  // The calls of all micro-steps.
  IdVector<EventId, HostEvent> events;
  // The instruction of each call. The end of a micro-step has none.
  IdVector<EventId, Position> event_at;
  // The position up to which each call runs the program.
  IdVector<EventId, Position> event_end;
  // One past the last instruction of each bucket's reduction in round 0, for each micro-step that
  // is written out; none if the bucket is not reduced.
  IdVector<MicroId, IdVector<BucketId, InstrId>> reduced_at;
  // Returns the position after the last instruction of the reduction of a bucket, or the start of
  // the program if the bucket is not reduced.
  Position reduced(const Program& program, MicroId micro, BucketId bucket) const;
};

// A compiled recorded step.
struct RecordedStep {
  Program program;
  RecordedOrder order;
  // Plan::choice of this program.
  size_t choice = 0;
};

// Compiles a step from the calls that a host made. `beside` are the transient bytes, by tier, that
// remain in use while the step runs; `written_out` and `first_choice` are those of PlanPrograms.
// Returns nullopt if no such program fits memory_budget.
std::optional<RecordedStep> compile_recorded(const Plan& plan, const Config& config,
                                             const Machine& machine,
                                             IdVector<EventId, HostEvent> events,
                                             std::span<const int64_t, 3> beside,
                                             int64_t written_out, size_t first_choice = 0);

}  // namespace ds
