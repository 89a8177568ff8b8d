#pragma once
#include "core/graph/graph.h"

namespace ds {

// Makes the losses of the single targets output 1 of a forward graph: f32[n], -log p of the target
// of each row, 0 in a row without one. They are computed as the loss is, from the same operands
// and, with a fused head, without stored logits. Throws DS_ERROR_CONFIG, naming the key, unless
// exactly one cross-entropy makes the loss.
void infer_token_losses(Graph& graph);

}  // namespace ds
