#pragma once
#include <cstddef>

#include "compile/plan.h"
#include "core/config/config.h"
#include "core/graph/graph.h"
#include "core/program/mesh.h"
#include "core/program/program.h"
#include "zero/zero_plan.h"

namespace ds {

// Compiles the plan of an engine with a graph, for one rank. Throws DS_ERROR_CONFIG on
// contradictions, and DS_ERROR_OUT_OF_MEMORY with a table if no choice fits memory_budget, unless
// PlanPrograms::within_budget is false. `verify_passes` runs the program verifier after the passes.
Plan compile_plan(const Graph& forward, const Config& config, int rank, const Mesh& mesh,
                  const Machine& machine, bool verify_passes = true,
                  const PlanPrograms& programs = {});

// Compiles a plan again with other parameters frozen. The layout and the offsets of all persistent
// buffers do not change; new states are placed after them. `first_choice` is as in PlanPrograms.
Plan recompile_plan(const Plan& plan, const Graph& forward, const Config& config,
                    const Machine& machine, const TrainedParams& trained, bool verify_passes = true,
                    size_t first_choice = 0);

}  // namespace ds
