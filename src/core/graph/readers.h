#pragma once
#include <vector>

#include "core/graph/graph.h"

namespace ds {

// Returns the number of readers of each value: operands of nodes and outputs of the graph.
IdVector<ValueId, int> count_readers(const Graph& graph);

}  // namespace ds
