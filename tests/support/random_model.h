#pragma once
#include "core/graph/graph.h"

namespace ds::test {

// A small training graph drawn by `seed`: tokens or rows of numbers in, then blocks of linear,
// layer_norm, gelu, relu, add, dropout and attention of odd widths, with parameters that are used
// twice and some that the loss does not depend on. Inputs: x (f32[n,C] or i32[n]) and target;
// outputs: the loss and what it is of.
Graph random_model(uint64_t seed);

}  // namespace ds::test
