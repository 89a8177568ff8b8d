#pragma once
#include "core/graph/graph.h"

namespace ds {

// Merges nodes of equal op, operands and attributes into the first of them, and removes nodes, with
// their values, on which neither an output nor the gradient of a parameter depends. Equal nodes
// have equal results: random ones differ in their attribute `op`. Ids of values and nodes change.
void eliminate_common_subexpressions(Graph& graph);

}  // namespace ds
