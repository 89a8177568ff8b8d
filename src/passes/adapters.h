#pragma once
#include "core/graph/graph.h"
#include "nn/adapter_keys.h"

namespace ds {

// Gives linear layers low-rank adapters (Hu et al., arXiv:2106.09685): the result y of a chosen
// layer with input x becomes y + s B A dropout(x). With use_dora it becomes the product with the
// weight m / |W + s B A| (W + s B A) instead, where m has a number for each output; the engine sets
// m to the norms (engine/magnitudes.h). The parameters A, B and m follow those of the base, whose
// ids stay. Parameters of the base are frozen, except those that modules_to_save and bias name.
// Returns the graph itself without an adapter. The graph must have no backward part. Throws
// DS_ERROR_CONFIG, naming the key, for a target that matches no layer, for a rank above the widths
// of its layer, and for modules_to_save that match no parameter or a tied table.
//
// Every graph has the parameters of all adapters. Only those of the adapter with number `chosen`
// are used; with kNoAdapterNumber none are. Those of keys.others are frozen.
Graph add_adapters(const Graph& graph, const AdapterKeys& keys, int chosen = 0);

}  // namespace ds
