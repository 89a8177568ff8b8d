#pragma once
#include <cstdint>

#include "core/graph/graph.h"

namespace ds {

// Element-wise operations and norms of the forward part whose result the backward part reads, and
// whose inputs it reads anyway (or are parameters or inputs), are made again before their first
// reader there, so that the result does not live from forward to backward. Same bits: kernels and
// random numbers depend on operands and attributes only. After autodiff and cse (which would merge
// the copies again).
void recompute_cheap(Graph& graph);

// Of each `layers` neighbouring layers only what later layers read is kept; the backward part makes
// the rest of what it reads again, from there, directly before its first reader. A layer is what
// the parameters of one numbered scope compute ("h.3", core/base/name.h); what comes before the
// first and after the last is kept, and so are results of custom operations, which run once. Same
// bits, dropout included. After autodiff and cse.
void recompute_layers(Graph& graph, int64_t layers);

}  // namespace ds
