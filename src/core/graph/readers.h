#pragma once
#include <vector>

#include "core/graph/graph.h"

namespace ds {

// By value: how many operands of nodes read it, and one more for each time that it is an output of
// the graph.
IdVector<ValueId, int> count_readers(const Graph& graph);

}  // namespace ds
