#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "compile/decode_plan.h"
#include "compile/memory_plan.h"
#include "compile/schedule.h"
#include "core/config/config.h"
#include "core/graph/graph.h"
#include "core/program/mesh.h"
#include "core/program/program.h"
#include "optim/optimizer.h"
#include "zero/policy.h"

namespace ds {

// Programs of a plan beside training and evaluation.
struct PlanPrograms {
  bool infer = true;  // when the graph has a second output
  DecodeRequest decode;
  // A step of at most so many micro-steps is written out. Of a longer one some are, of which one is
  // repeated.
  int64_t written_out = 16;
  // The order of a step that is written out; empty: accumulate_in_turn.
  std::vector<Action> schedule;
  // Matrices are cut between rows: a granule of theirs is a row.
  bool row_granules = false;
  // The value that evaluation computes, a scalar as the loss is; none: output 0.
  ValueId evaluated;
  // A plan beyond memory_budget is refused; false: it is made with all that saves memory, for who
  // asks.
  bool within_budget = true;
};
// Everything an engine runs, compiled for one rank: a pure function of (graph, config, rank, mesh,
// machine).
struct Plan {
  ZeroPlan zero;
  Graph graph;         // with precision, backward and cse applied
  Graph eval_graph;    // its forward part as `eval` runs it
  BufferId eval_loss;  // f32[1]
  // f32[1]: Graph::loss_weight; none without one.
  BufferId eval_weight;
  BufferId logits;  // compute type [bound, vocabulary], when the graph has a second output
  Program init;     // draws parameters
  Program refresh;  // parameters from masters
  Program step;     // forward[0] backward[0] ... update
  // The same of the optimizer's other forms of a step.
  std::map<StepForm, Program> other_forms;
  Program eval;   // forward without dropout
  Program infer;  // outputs[1] of the graph; empty without one
  std::optional<DecodePlan> decode;
  int64_t written_out = 0;  // PlanPrograms::written_out, schedule, within_budget
  std::vector<Action> schedule;
  bool within_budget = true;
  std::string hash;  // plan hash: equal on all ranks
  std::vector<std::string>
      notes;  // what the compiler decided, for reports ("prefetch off to fit the budget")
};

// The program of a step of that form.
const Program& step_of(const Plan& plan, StepForm form);
// The text of `step`, and of its other forms behind it.
std::string print_steps(const Plan& plan);

// Of all its programs, which share their arenas.
MemoryPlan memory_plan(const Plan& plan);

// Compiles. Throws DS_ERROR_CONFIG on contradictions and DS_ERROR_OUT_OF_MEMORY with a table when
// memory_budget is exceeded on every retry. `verify_passes`: run the program verifier after the
// passes.
Plan compile_plan(const Graph& forward, const Config& config, int rank, const Mesh& mesh,
                  const Machine& machine, bool verify_passes = true,
                  const PlanPrograms& programs = {});

// The same plan with other parameters frozen: layout and places of all buffers stay, new states lie
// behind them.
Plan recompile_plan(const Plan& plan, const Graph& forward, const Config& config,
                    const Machine& machine, const TrainedParams& trained,
                    bool verify_passes = true);

// Which of the named parameters config.frozen_parameters means ('*' and '?' as in file names).
// Throws DS_ERROR_CONFIG naming a pattern that means none.
IdVector<ParamId, char> frozen_by_name(const Config& config,
                                       const IdVector<ParamId, std::string>& names);
// Of each of them the group of config.optimizer.groups, 1 and further; 0: it is in none. Throws
// likewise, also for a parameter of two groups. dims: how many dimensions each has; only
// optimizer.no_decay asks.
IdVector<ParamId, int32_t> groups_by_name(const Config& config,
                                          const IdVector<ParamId, std::string>& names,
                                          const IdVector<ParamId, size_t>& dims = {});

}  // namespace ds
