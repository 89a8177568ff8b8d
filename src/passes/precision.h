#pragma once
#include "core/graph/graph.h"

namespace ds {

// Sets the compute type of a forward graph: parameters and floating-point inputs become `compute`
// and every node's outputs are inferred anew. Call before differentiate().
void set_precision(Graph& graph, DType compute);

// Makes products of a forward graph in the type `low`, as torch.autocast does: parameters and
// inputs stay as they are, and casts stand before the operations that want another type. Norms and
// losses are f32; what joins an f32 operand with one of `low` is f32, too. Call behind
// set_precision().
void autocast(Graph& graph, DType low);

// The gradient of the loss, with which the backward part begins, becomes the loss scale of the
// step.
void scale_loss(Graph& graph);

// Output `index` becomes a cast of itself to f32, unless it is f32.
void cast_output(Graph& graph, size_t index);

}  // namespace ds
