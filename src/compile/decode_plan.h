#pragma once
#include "compile/plan.h"
#include "core/config/config.h"
#include "core/graph/graph.h"
#include "core/program/mesh.h"
#include "zero/zero_plan.h"

namespace ds {

// Returns whether an input of decode_graph() is a cache. The other inputs are ids, positions and
// lengths.
bool is_cache(const Value& input);

// Creates the graph of a decode program and adds the program's persistent buffers to `zero`.
DecodePlaces begin_decode(const Graph& forward, DType compute, const DecodeRequest& request,
                          ZeroPlan& zero);

// Compiles a plan without training: parameters in the compute type, caches, and no other state.
// Ranks hold whole parameters at stages 0 to 2 and shards at stage 3. The programs are decode and
// refresh. At stage 3, refresh gathers small parameters from the ranks' parts.
Plan compile_generation(const Graph& forward, const Config& config, const DecodeRequest& request,
                        int rank, const Mesh& mesh, const Machine& machine,
                        bool verify_passes = true);

}  // namespace ds
