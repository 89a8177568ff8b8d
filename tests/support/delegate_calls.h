// Compiles the plan of a delegate engine without creating the engine, and lists the calls of a host
// that trains layer by layer.
#pragma once
#include <cstdint>

#include "compile/delegate.h"
#include "core/config/config.h"

namespace ds::test {

// Returns the plan of an engine whose `params` parameters are matrices of 40 x 33.
Plan delegate_plan(const Config& config, int params, int rank, int world);

// Returns the host's calls of one step. Each micro-step gathers and releases every parameter in
// forward and in backward order, and hands over every gradient, except that of `missing_last` in
// the last micro-step.
IdVector<EventId, HostEvent> layer_calls(int params, int64_t micros, ParamId missing_last = none);

}  // namespace ds::test
