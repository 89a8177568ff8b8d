#pragma once
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/config/config.h"
#include "monitor/event_file.h"
#include "monitor/metrics.h"
#include "monitor/progress.h"
#include "run/folder.h"

namespace ds {

// What rank 0 tells while a run goes: standard output, metrics.csv, TensorBoard events.
class Record {
 public:
  // first: step the run begins at. quiet as TrainOptions::quiet.
  Record(const Config& config, const RunFolder& folder, int64_t first, int quiet, const TierBytes& plan);
  void note(const std::string& line);
  void step(const StepRecord& record);
  void eval(const EvalRecord& record);
  void finish();
  // All of the run, also what earlier calls of a resumed run recorded.
  const Metrics& history() const { return history_; }

 private:
  std::optional<Progress> progress_;
  std::optional<MetricsCsv> csv_;
  std::optional<EventFile> events_;
  Metrics history_;
};

}  // namespace ds
