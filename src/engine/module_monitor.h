#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/base/trace.h"
#include "core/graph/graph.h"
#include "core/graph/module_cost.h"
#include "core/program/program.h"
#include "exec/step_times.h"
#include "monitor/keys.h"

namespace ds {

// Times of a module and its children, in seconds per step.
struct ModuleTimes {
  Module module;
  double forward = 0, backward = 0;
};

// The mean times of one rank's steps, in seconds.
struct StepBreakdown {
  // The model comes first, and each parent comes before its children.
  std::vector<ModuleTimes> modules;
  // Time spent computing; `step` is the update.
  double forward = 0, backward = 0, step = 0;
  // Time of collectives and copies in all phases.
  double communication = 0;
  // Time in which no instruction runs.
  double between = 0;
  double total = 0;
};

// Returns the mean times of the recorded steps by module. `compiled` is the graph whose nodes the
// program's instructions compute, and `forward` the model, from which the parameters and operations
// of a micro-step of n rows are counted.
StepBreakdown step_breakdown(const StepTimes& times, const Graph& compiled, const Graph& forward,
                             int64_t n);

std::string breakdown_text(const StepBreakdown& breakdown, int64_t step, int steps);

// Facts that the report of flops_profiler shows.
struct FlopsContext {
  int64_t step = 0, micro_batch = 0, accumulation = 1;
  int ranks = 1;
};
std::string flops_text(const StepBreakdown& breakdown, const FlopsProfilerConfig& config,
                       const FlopsContext& context);

// The reports of wall_clock_breakdown and flops_profiler, for an engine that computes the model
// itself. Reads the trace of its steps, adds up times by module and reports on rank 0. A failure
// here is logged once as a warning and ends the reports.
class ModuleMonitor {
 public:
  using Tell = std::function<void(const std::string&)>;
  // `keys` and `trace` are borrowed; the step of `context` is not read. With `clears`, nobody else
  // uses the spans of `trace`, so they are deleted. `tell` receives the reports; if it is null,
  // they are written to the log.
  ModuleMonitor(const MonitorKeys& keys, const FlopsContext& context, int rank, Trace& trace,
                bool clears, Tell tell);
  static bool wanted(const MonitorKeys& keys) {
    return keys.wall_clock_breakdown || keys.flops_profiler.enabled;
  }

  // Begins a step.
  void begin();
  // Ends a step, whose number `step` counts from 1. The graphs are those of step_breakdown().
  void end(const Program& program, int64_t step, const Graph& compiled, const Graph& forward,
           int64_t n);
  // Forgets the steps so far, because the programs have changed.
  void forget();

 private:
  void tell(const std::string& text) const;
  void add(const Program& program, int64_t step, const Graph& compiled, const Graph& forward,
           int64_t n);

  const MonitorKeys& keys_;
  FlopsContext context_;
  int rank_;
  Trace& trace_;
  bool clears_, ended_ = false;
  Tell tell_;
  // The report file of flops_profiler, or "" if the report is written to the log.
  std::string report_;
  size_t mark_ = 0;
  int64_t begin_ns_ = 0;
  std::optional<StepTimes> times_;
};

}  // namespace ds
