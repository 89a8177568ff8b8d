#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "core/config/key.h"

namespace ds {

// A number of steps that no run reaches, so that only the first and the last line are printed.
inline constexpr int64_t kNeverPrint = INT64_MAX;

// The section comms_logger.
struct CommsLoggerConfig {
  bool enabled = false;
  // Whether all collectives are timed; otherwise only those in `operations`.
  bool all = true;
  std::vector<std::string> operations;
};

// The settings of one monitor.
struct MonitorConfig {
  bool enabled = false;
  // The folder in which each job has a subfolder; "" means the run folder.
  std::string output_path = {};
  std::string job_name = "DeepSpeedJobName";
};

// The section flops_profiler: a report of one step by module (engine/module_monitor.h).
struct FlopsProfilerConfig {
  bool enabled = false;
  // The step to report, counted from 1.
  int64_t profile_step = 1;
  // Depth of the lists of largest modules; -1 means the greatest depth.
  int64_t module_depth = -1;
  // Number of modules in each list.
  int64_t top_modules = 1;
  // Whether the tree of all modules is reported as well.
  bool detailed = true;
  // Path of the report; "" means the log.
  std::string output_file = {};
  // Number of forward passes by which recomputation increases the operations of a step.
  double recompute_fwd_factor = 0;
};

// The settings of all reports of a run.
struct MonitorKeys {
  // Steps between progress lines; kNeverPrint means only the first and the last line.
  int64_t steps_per_print = 10;
  MonitorConfig tensorboard{.enabled = true}, csv_monitor{.enabled = true}, jsonl_monitor;
  CommsLoggerConfig comms_logger;
  FlopsProfilerConfig flops_profiler;
  // Whether times by module are reported, every steps_per_print steps.
  bool wall_clock_breakdown = false;
};

// Adds the keys of a run's reports: progress lines, monitors, loggers, the profiler.
void monitor_keys(KeyList& keys);

}  // namespace ds
