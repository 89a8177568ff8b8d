#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "compile/pipeline.h"

namespace ds {

// One call of a delegate host within a step.
struct HostEvent {
  enum class Kind { gather = 0, release, grad, end };  // end: of a micro-step
  Kind kind = Kind::gather;
  std::vector<int32_t> params;
  bool operator==(const HostEvent&) const = default;
};

// A delegate engine's programs; `zero` holds the persistent buffers of all of them.
struct DelegatePlan {
  ZeroPlan zero;
  std::vector<ParamSpec> params;
  std::vector<TensorType> types;  // per parameter, compute type
  // First step, or after the host changed its order: every bucket has a place of its own, backed by pages
  // only while it is leased.
  std::vector<BufferId> lease;  // per bucket: whole parameters; the persistent copy when not partitioned
  std::vector<BufferId> grads;  // per bucket; -1 where nothing was ever trained
  Program init, refresh, update;
  std::string hash;
};

DelegatePlan compile_delegate(const Config& config, const std::vector<ParamSpec>& params,
                              const std::vector<Shape>& shapes, int rank, int world, const Machine& machine);

// The same with other parameters frozen; see recompile_plan.
DelegatePlan recompile_delegate(const DelegatePlan& plan, const Config& config, const Machine& machine,
                                const std::vector<char>& frozen, const std::vector<int64_t>& missed);

// Fragments of the first step.
Program gather_fragment(const DelegatePlan& plan, const Config& config, const Machine& machine,
                        size_t bucket);
Program reduce_fragment(const DelegatePlan& plan, const Config& config, const Machine& machine, size_t bucket,
                        int32_t micro);

// A step as a host did it: the same passes as a native step, with a lease, grad or release instruction
// (attribute `event`) where the host runs. Between two host calls a reduction has either not begun or ended,
// so that the step can be left there: what is reduced stays, what is not lies in `grads`.
struct RecordedStep {
  Program program;
  std::vector<HostEvent> events;
  std::vector<InstrId> event_end;  // per event: one past the last instruction that runs with this call
  // Per micro-step and bucket; -1 where nothing is trained.
  std::vector<std::vector<BufferId>> grads;      // what the host gave, until it is reduced
  std::vector<std::vector<InstrId>> reduced_at;  // one past the last instruction of the reduction
};

// `beside`: transient bytes that stay taken beside it, by tier. None when memory_budget takes no such
// program.
std::optional<RecordedStep> compile_recorded(const DelegatePlan& plan, const Config& config,
                                             const Machine& machine, std::vector<HostEvent> events,
                                             std::span<const int64_t, 3> beside);

}  // namespace ds
