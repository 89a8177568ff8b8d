#pragma once
#include "core/graph/graph.h"

namespace ds::test {

// Returns a small training graph drawn from `seed`. Its input is tokens or rows of numbers,
// followed by blocks of linear, layer_norm, gelu, relu, add, dropout and attention with arbitrary
// widths. A parameter may be used twice, and the loss may not depend on some parameters. Inputs: x
// (f32[n,C] or i32[n]) and target. Outputs: the loss and the value that it is computed from.
Graph random_model(uint64_t seed);

}  // namespace ds::test
