#pragma once
#include "core/graph/graph.h"

namespace ds {

// Element-wise operations and norms of the forward part whose result the backward part reads, and whose
// inputs it reads anyway (or are parameters or inputs), are made again before their first reader there, so
// that the result does not live from forward to backward. Same bits: kernels and random numbers depend on
// operands and attributes only. After autodiff and cse (which would merge the copies again).
void recompute_cheap(Graph& graph);

}  // namespace ds
