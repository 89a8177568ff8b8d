#pragma once
#include "core/config/config.h"
#include "core/graph/graph.h"

namespace ds {

// The graph of config.model for micro-batches of micro_batch * sequence tokens; DS_ERROR_CONFIG without a
// family.
Graph model_graph(const Config& config);

}  // namespace ds
