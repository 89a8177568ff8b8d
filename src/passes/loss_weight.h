#pragma once
#include <cstdint>

#include "core/graph/graph.h"

namespace ds {

// Adds the number of targets of a micro-step to a forward graph as its loss_weight. The loss must
// be the mean of a cross-entropy over its targets, or a sum of terms that contains such means, all
// over the same targets; terms may be scaled or cast. Otherwise throws DS_ERROR_CONFIG, naming the
// terms or the targets.
void weigh_by_targets(Graph& graph);

// Returns the smallest power of two that is at least the largest possible number of targets.
int64_t loss_unit(const Graph& graph);

// Returns the value whose gradients the backward part computes: the loss or, with a loss_weight,
// the loss times weight / loss_unit. This factor is exact and at most 1, so gradients overflow at
// no smaller loss scale than without weights.
ValueId weighted_loss(Graph& graph);

}  // namespace ds
