#pragma once
#include "core/graph/graph.h"

namespace ds {

// Sets the compute type of a forward graph: parameters and floating-point inputs get the type
// `compute`, and the types of all results are inferred again. Call it before differentiate().
void set_precision(Graph& graph, DType compute);

// Computes the products of a forward graph in the type `low`, as torch.autocast does. Parameters
// and inputs keep their types; casts are inserted before operations that need another type. Norms,
// losses and softmax are computed in f32, and so is any other operation that has an f32 operand.
// Call it after set_precision().
void autocast(Graph& graph, DType low);

// Multiplies the seed of the backward part, the gradient of the loss, by the loss scale of the
// step.
void scale_loss(Graph& graph);

// Replaces output `index` by its cast to f32, unless it is already f32.
void cast_output(Graph& graph, size_t index);

}  // namespace ds
