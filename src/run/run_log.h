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
#include "monitor/metrics.h"
#include "monitor/progress.h"
#include "monitor/run_record.h"
#include "monitor/scalar_files.h"
#include "run/folder.h"

namespace ds {

// Writes to standard output at once; false when that fails. Raises no signal.
bool print_out(std::string_view text);

// Runs what a run can do without: its error is a warning.
void dispensable(const std::function<void()>& body);

// What rank 0 tells while a run goes: standard output, metrics.csv, TensorBoard events, files of
// csv_monitor and jsonl_monitor. Training does not depend on it: what cannot be written is a
// warning, once for each.
class RunLog {
 public:
  // first: step the run begins at. quiet as TrainOptions::quiet.
  RunLog(const Config& config, const RunFolder& folder, int64_t first, int64_t samples, int quiet,
         const TierBytes& plan);
  void note(const std::string& line);
  void step(const StepRecord& record);
  void skipped(const SkippedRecord& record);
  void eval(const EvalRecord& record);
  void finish();
  void sync();  // the files, before a checkpoint is committed that has these steps
  // All of the run, also what earlier calls of a resumed run recorded.
  const Metrics& history() const { return history_; }

 private:
  void print(std::string_view text);
  std::optional<Progress> progress_;
  bool deaf_ = false;  // standard output has failed
  std::optional<MetricsCsv> csv_;
  std::optional<EventFile> events_;
  std::optional<ScalarFiles> scalars_;
  std::optional<MetricsJsonl> lines_;
  Metrics history_;
};

}  // namespace ds
