#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "compile/pipeline.h"
#include "core/program/mesh.h"

namespace ds {

// One call of a delegate host within a step.
struct HostEvent {
  enum class Kind { gather = 0, release, grad_view, grad, end };  // end: of a micro-step
  Kind kind = Kind::gather;
  std::vector<ParamId> params;
  bool operator==(const HostEvent&) const = default;
};

// A delegate engine's programs; `zero` holds the persistent buffers of all of them.
struct DelegatePlan {
  ZeroPlan zero;
  IdVector<ParamId, ParamSpec> params;
  IdVector<ParamId, TensorType> types;  // compute type
  // First step, or after the host changed its order: every bucket has a place of its own, backed by
  // pages only while it is leased.
  IdVector<BucketId, BufferId> lease;  // whole parameters; the persistent copy when not partitioned
  IdVector<BucketId, BufferId> grads;  // none where nothing was ever trained
  Program init, refresh, update;
  std::string hash;
};

DelegatePlan compile_delegate(const Config& config, const IdVector<ParamId, ParamSpec>& params,
                              const IdVector<ParamId, Shape>& shapes, int rank, const Mesh& mesh,
                              const Machine& machine);

// The same with other parameters frozen; see recompile_plan.
DelegatePlan recompile_delegate(const DelegatePlan& plan, const Config& config,
                                const Machine& machine, const TrainedParams& trained);

// Fragments of the first step: "gather.BUCKET", "reduce.BUCKET.MICRO-STEP".
Program gather_fragment(const DelegatePlan& plan, const Config& config, const Machine& machine,
                        BucketId bucket);
Program reduce_fragment(const DelegatePlan& plan, const Config& config, const Machine& machine,
                        BucketId bucket, MicroId micro);

// All of them.
std::vector<Program> all_fragments(const DelegatePlan& plan, const Config& config,
                                   const Machine& machine);

// A step as a host did it: the same passes as a native step, with a lease, grad or release
// instruction (attribute `event`) where the host runs. Between two host calls a reduction has
// either not begun or ended, so that the step can be left there: what is reduced stays, what is not
// lies in `grads`.
//
// Where all micro-steps but the first and the last have the same calls, a long step has one of them
// written out and repeated (passes/repeat.cpp): the calls of round r have numbers further on.
struct RecordedStep {
  Program program;
  IdVector<EventId, HostEvent> events;  // of all micro-steps
  IdVector<EventId, Position>
      event_at;  // the instruction of a call; of the end of a micro-step: none
  IdVector<EventId, Position> event_end;  // behind the last instruction that runs with this call
  // Behind the last instruction of the reduction of a bucket; in front of all where it has none.
  Position reduced(MicroId micro, BucketId bucket) const;
  // By written-out micro-step: as `reduced`, in the first round.
  IdVector<MicroId, IdVector<BucketId, InstrId>> reduced_at;
};

// `beside`: transient bytes that stay taken beside it, by tier. None when memory_budget takes no
// such program. written_out: PlanPrograms::written_out.
std::optional<RecordedStep> compile_recorded(const DelegatePlan& plan, const Config& config,
                                             const Machine& machine,
                                             IdVector<EventId, HostEvent> events,
                                             std::span<const int64_t, 3> beside,
                                             int64_t written_out);

}  // namespace ds
