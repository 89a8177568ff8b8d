#pragma once
#include "core/graph/graph.h"

namespace ds::test {

// Returns the graph x f32[n,6] -> linear -> gelu -> layer_norm -> linear, with mse against target
// f32[n,3] as its output, and n at most 64.
Graph two_layer_mlp();

}  // namespace ds::test
