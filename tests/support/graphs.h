#pragma once
#include "core/graph/graph.h"

namespace ds::test {

// x f32[n,6] -> linear -> gelu -> layer_norm -> linear, mse against target f32[n,3]; bound 64.
// outputs: loss.
Graph two_layer_mlp();

}  // namespace ds::test
