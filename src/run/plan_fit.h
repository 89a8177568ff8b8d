#pragma once
#include <memory>
#include <string>
#include <vector>

#include "compile/memory_fit.h"
#include "compile/pipeline.h"
#include "compile/plan.h"
#include "core/base/json.h"
#include "core/config/config.h"
#include "core/graph/graph.h"

namespace ds {

// The inputs of make_plan().
struct PlanSource {
  Json document;
  // Null means that the document names the model.
  std::shared_ptr<const Graph> graph;
  int rank = 0, ranks = 1;
};
// A plan, with the configuration that it was compiled from.
struct MadePlan {
  Config config;
  Plan plan;
};
// Compiles the plan that an engine would have with the same source on `ranks` ranks over
// topology.nodes machines (or one machine); without a graph, the plan of a run. Its hash and bytes
// do not depend on the machine that calls this. A plan that exceeds memory_budget is not an error.
// `trial` is for a generated document: no warnings are logged and no program is verified.
MadePlan make_plan(const PlanSource& source, bool trial = false);

// Whether a plan fits into memory_budget and into this machine, with all local ranks on it.
struct PlanFit {
  std::vector<MemoryLimit> limits;
  // Facts about this machine that could not be determined, and why; or "".
  std::string unknown;
  // If the plan does not fit: lines that name the changes that would make it fit, the cheapest
  // first. If no single change does, they say what all changes together and more machines would
  // achieve.
  std::vector<std::string> help;
  bool fits() const;
  // Returns one line, "fits: ..." or "does not fit: ...".
  std::string text() const;
  Json json() const;
};
// Compares the plan with the machine. If it does not fit, tries changed plans and lists those that
// help.
PlanFit plan_fit(const PlanSource& source, const MadePlan& made);

}  // namespace ds
