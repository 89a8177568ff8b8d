#pragma once
#include "core/graph/graph.h"

namespace ds {

// Merges nodes of equal op, inputs and attributes into the first, and removes nodes that neither an
// output nor a parameter's gradient depends on, with their values. Equal nodes have equal results:
// random ones differ in their `op` attribute. Value and node ids change.
void eliminate_common_subexpressions(Graph& graph);

}  // namespace ds
