#pragma once
#include "core/graph/graph.h"

namespace ds {

// Merges nodes of equal op, inputs and attributes, and removes nodes that neither an output nor a gradient
// depends on. Equal nodes have equal results: random ones differ in their `op` attribute.
void eliminate_common_subexpressions(Graph& graph);

}  // namespace ds
