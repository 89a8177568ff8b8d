#pragma once
#include <cstdint>

#include "core/graph/graph.h"

namespace ds {

// Computes cheap results of the forward part again in the backward part, directly before the first
// node that reads them, so that they need not live from forward to backward. This applies to
// element-wise operations and norms whose operands are parameters, inputs or values that the
// backward part reads anyway. Results keep their bits: kernels and random numbers depend on
// operands and attributes only. Call it after autodiff and after cse, which would merge the copies
// again.
void recompute_cheap(Graph& graph);

// In each block of `layers` consecutive layers, keeps only the results that other blocks read and
// the graph's outputs. From these, the backward part recomputes the other results that it needs,
// each directly before the first node that reads it. A layer consists of the nodes that compute
// with the parameters of one numbered scope ("h.3", core/base/name.h). Everything before the first
// layer and after the last is kept, and so are results of custom operations, which run once.
// Results keep their bits, dropout included. Call it after autodiff and cse.
void recompute_layers(Graph& graph, int64_t layers);

}  // namespace ds
