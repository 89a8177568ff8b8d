#pragma once
#include <vector>

#include "core/graph/graph.h"

namespace ds {

// Returns how often each value is read, as an operand of a node or as an output of the graph.
IdVector<ValueId, int> count_readers(const Graph& graph);

// Returns the output of the graph that is the rewards of a preference_loss, or an id that does not
// exist.
ValueId rewards_of(const Graph& graph);

}  // namespace ds
