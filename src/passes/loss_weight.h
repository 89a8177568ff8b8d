#pragma once
#include <cstdint>

#include "core/graph/graph.h"

namespace ds {

// Makes the number of targets of a micro-step Graph::loss_weight of a forward graph. Its loss must
// be the mean of a cross-entropy over its targets, or a sum of that and other terms, each perhaps
// scaled or cast. Throws DS_ERROR_CONFIG that names what the loss is made of otherwise.
void weigh_by_targets(Graph& graph);

// The smallest power of two that no number of targets exceeds.
int64_t loss_unit(const Graph& graph);

// What the backward part is the gradient of: the loss, or with a loss_weight the loss times weight
// / loss_unit. That share is at most 1 and has no rounding error, so that loss scales mean what
// they mean without weights.
ValueId weighted_loss(Graph& graph);

}  // namespace ds
