#pragma once
#include <memory>
#include <string>
#include <vector>

#include "compile/memory_fit.h"
#include "compile/pipeline.h"
#include "core/base/json.h"
#include "core/config/config.h"
#include "core/graph/graph.h"

namespace ds {

// What a plan is made from.
struct PlanSource {
  Json document;
  std::shared_ptr<const Graph> graph;  // null: the model that the document names
  int rank = 0, ranks = 1;
};
struct MadePlan {
  Config config;
  Plan plan;
};
// The plan of an engine that is made from the same on `ranks` ranks of topology.nodes machines (or
// of one), or that a run makes where there is no graph: with its hash and its bytes, on any
// machine. One beyond memory_budget is no error. trial: of a document that nobody wrote, which
// warns of nothing and verifies no program.
MadePlan make_plan(const PlanSource& source, bool trial = false);

// Whether a plan fits this machine, as its ranks would find it here, and memory_budget.
struct PlanFit {
  std::vector<MemoryLimit> limits;
  std::string unknown;  // what is not known of this machine, and why; or ""
  std::vector<std::string>
      help;  // where it does not fit: changes that would make it fit, the least first
  bool fits() const;
  std::string text() const;  // one line: "fits: ..." or "does not fit: ..."
  Json json() const;
};
// Makes other plans where this one does not fit.
PlanFit plan_fit(const PlanSource& source, const MadePlan& made);

}  // namespace ds
