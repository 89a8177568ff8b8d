#pragma once
#include "core/graph/graph.h"

namespace ds {

// Sets the compute type of a forward graph: parameters and floating-point inputs become `compute` and every
// node's outputs are inferred anew. Call before differentiate().
void set_precision(Graph& graph, DType compute);

// The gradient of the loss, with which the backward part begins, becomes the loss scale of the step.
void scale_loss(Graph& graph);

// Output `index` becomes a cast of itself to f32, unless it is f32.
void cast_output(Graph& graph, size_t index);

}  // namespace ds
