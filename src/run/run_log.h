#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/config/config.h"
#include "monitor/event_file.h"
#include "monitor/keys.h"
#include "monitor/metrics.h"
#include "monitor/progress.h"
#include "monitor/run_record.h"
#include "monitor/scalar_files.h"
#include "run/folder.h"

namespace ds {

// Writes to standard output and flushes it, without raising a signal. Returns false, with errno
// set, if that fails.
bool print_out(std::string_view text);

// Runs `body`, which the run can do without: an error becomes a warning.
void dispensable(const std::function<void()>& body);

// The reports of rank 0 during a run: standard output, metrics.csv, TensorBoard events, and the
// files of csv_monitor and jsonl_monitor. Training does not depend on them: a failed write is
// logged as a warning, once for each file.
class RunLog {
 public:
  // `first` and `samples` are the numbers of steps and samples before this process, `quiet` is
  // TrainOptions::quiet, and `plan` has the planned bytes of each tier.
  RunLog(int64_t steps, const MonitorKeys& keys, const RunFolder& folder, int64_t first,
         int64_t samples, int quiet, const TierBytes& plan);
  void note(const std::string& line);
  void step(const StepRecord& record);
  void skipped(const SkippedRecord& record);
  void eval(const EvalRecord& record);
  void finish();
  // Syncs the files. Call it before committing a checkpoint that includes the steps written so far.
  void sync();
  // Returns the metrics of this process and, with csv_monitor, those before a resume.
  const Metrics& history() const { return history_; }

 private:
  void print(std::string_view text);
  std::optional<Progress> progress_;
  // Whether writing to standard output has failed.
  bool deaf_ = false;
  std::optional<MetricsCsv> csv_;
  std::optional<EventFile> events_;
  std::optional<ScalarFiles> scalars_;
  std::optional<MetricsJsonl> lines_;
  Metrics history_;
};

}  // namespace ds
