#pragma once
#include "core/graph/graph.h"
#include "engine/runtime.h"
#include "engine/state_store.h"

namespace ds {

// Sets the magnitudes of every adapter of DoRA in `graph` to the norms of the rows of its adapted
// weight, as the kernel of the forward part computes them, so that the adapter changes nothing but
// B A. Does nothing without such an adapter. Collective.
void set_magnitudes(const Graph& graph, Runtime& runtime, StateStore& store);

}  // namespace ds
