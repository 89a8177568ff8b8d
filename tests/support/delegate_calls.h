// The plan of a delegate engine without an engine, and the calls of a host that trains layer by
// layer.
#pragma once
#include <cstdint>

#include "compile/delegate.h"
#include "core/config/config.h"

namespace ds::test {

// `params` matrices of 40 x 33.
DelegatePlan delegate_plan(const Config& config, int params, int rank, int world);

// Each micro-step gathers and releases every parameter, forward and back, and gives each its
// gradient; that of `missing_last` does not come in the last micro-step.
IdVector<EventId, HostEvent> layer_calls(int params, int64_t micros, ParamId missing_last = none);

}  // namespace ds::test
