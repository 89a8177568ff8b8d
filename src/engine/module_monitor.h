#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/base/trace.h"
#include "core/config/config.h"
#include "core/graph/graph.h"
#include "core/graph/module_cost.h"
#include "core/program/program.h"
#include "exec/step_times.h"

namespace ds {

// Times of a module, children included, in seconds of one step.
struct ModuleTimes {
  Module module;
  double forward = 0, backward = 0;
};

// What one rank did in a step on the mean, in seconds.
struct StepBreakdown {
  std::vector<ModuleTimes> modules;            // the model first, a parent before its children
  double forward = 0, backward = 0, step = 0;  // computing; step: the update
  double communication = 0;                    // collectives and copies, of all phases
  double between = 0;                          // in which no instruction runs
  double total = 0;
};

// The steps that have been added up. compiled: the graph whose nodes the program's instructions
// compute; forward: the model, for parameters and operations of a micro-step of n rows.
StepBreakdown step_breakdown(const StepTimes& times, const Graph& compiled, const Graph& forward,
                             int64_t n);

std::string breakdown_text(const StepBreakdown& breakdown, int64_t step, int steps);

// What a flops profile says beside the times of one step.
struct FlopsContext {
  int64_t step = 0, micro_batch = 0, accumulation = 1;
  int ranks = 1;
};
std::string flops_text(const StepBreakdown& breakdown, const FlopsProfilerConfig& config,
                       const FlopsContext& context);

// wall_clock_breakdown and flops_profiler of an engine that computes the model itself: takes the
// spans of its steps, adds them up by module and tells rank 0. Whatever fails here is a warning,
// once, and no more reports.
class ModuleMonitor {
 public:
  using Tell = std::function<void(const std::string&)>;
  // trace is borrowed; clears: nobody else takes its spans. tell: null: lines of the log.
  ModuleMonitor(const Config& config, int rank, int ranks, Trace& trace, bool clears, Tell tell);
  static bool wanted(const Config& config) {
    return config.wall_clock_breakdown || config.flops_profiler.enabled;
  }

  void begin();  // of a step
  // step: its number, from 1; the graphs as for step_breakdown.
  void end(const Program& program, int64_t step, const Graph& compiled, const Graph& forward,
           int64_t n);
  void forget();  // programs have changed

 private:
  void tell(const std::string& text) const;
  void add(const Program& program, int64_t step, const Graph& compiled, const Graph& forward,
           int64_t n);

  const Config& config_;
  int rank_, ranks_;
  Trace& trace_;
  bool clears_, ended_ = false;
  Tell tell_;
  std::string report_;  // file of the flops profiler's report; empty: a line of the log
  size_t mark_ = 0;
  int64_t begin_ns_ = 0;
  std::optional<StepTimes> times_;
};

}  // namespace ds
