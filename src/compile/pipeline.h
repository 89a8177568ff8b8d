#pragma once
#include <span>
#include <string>
#include <vector>

#include "core/config/config.h"
#include "core/graph/graph.h"
#include "core/program/program.h"
#include "zero/insert.h"

namespace ds {

// Everything an engine runs, compiled for one rank: a pure function of (graph, config, rank, world, machine).
struct Plan {
  ZeroPlan zero;
  Graph graph;              // with precision, backward and cse applied
  BufferId eval_loss = -1;  // f32[1]
  BufferId logits = -1;     // compute type [bound, vocabulary], when the graph has a second output
  Program init;             // draws parameters
  Program refresh;          // parameters from masters
  Program step;             // forward[0] backward[0] ... update
  Program eval;             // forward without dropout
  Program infer;            // outputs[1] of the graph; empty without one
  std::string hash;         // plan hash: equal on all ranks
  std::vector<std::string>
      notes;  // what the compiler decided, for reports ("prefetch off to fit the budget")
};

// Bytes a rank needs, by tier: arenas shared by all programs.
struct MemoryPlan {
  ArenaSizes tiers[3];
  int64_t total(Tier tier) const {
    const ArenaSizes& a = tiers[static_cast<int>(tier)];
    return a.persistent + a.transient;
  }
};
MemoryPlan memory_plan(const Plan& plan);
bool fits(const MemoryPlan& memory, const MemoryBudget& budget);

// Compiles. Throws DS_ERROR_CONFIG on contradictions and DS_ERROR_OUT_OF_MEMORY with a table when
// memory_budget is exceeded on every retry. `verify_passes`: run the program verifier after the passes.
Plan compile_plan(const Graph& forward, const Config& config, int rank, int world, const Machine& machine,
                  bool verify_passes = true);

struct FinishOptions {
  bool prefetch = false;       // overlap_comm, unless it did not fit memory_budget
  bool verify_passes = false;  // run the program verifier after the passes
  bool may_end_early = false;  // the program may be given up half-way: files are current after every write
};
// The ordered list of passes that turns a linear order into a program that runs.
void finish_program(Program& program, const ZeroPlan& plan, const Config& config, const StepBuffers& buffers,
                    const Machine& machine, const FinishOptions& options);

// A table of bytes by tier and kind (parameters, states, gradients, activations and buffers). `buffers`: the
// engine's persistent ones.
std::string memory_table(std::span<const Buffer> buffers, const MemoryPlan& memory,
                         const MemoryBudget& budget);

}  // namespace ds
