#pragma once
#include "core/graph/graph.h"

namespace ds {

// Merges nodes with the same op, operands and attributes into the first of them. Removes nodes, and
// their values, on which no output, no gradient of a parameter and no loss_weight depends. Merging
// keeps results, because random operations differ in their attribute `op`. Ids of values and nodes
// change.
void eliminate_common_subexpressions(Graph& graph);

}  // namespace ds
