#pragma once
#include <string>
#include <vector>

#include "io/file.h"
#include "monitor/record.h"

namespace ds {

// metrics.csv: one line per step, and one per evaluation with only step and heldout_loss set. Columns:
//   step,loss,heldout_loss,lr,grad_norm,tokens_per_second,seconds,device_bytes,host_bytes,nvme_bytes
// Numbers parse back to the same bits; a line has been handed to the system when write returns (it is not
// synced).
class MetricsCsv {
 public:
  // Keeps the lines of an existing file up to and with step `keep_until` (a run that goes on from there).
  explicit MetricsCsv(const std::string& path, int64_t keep_until = 0);
  void write(const StepRecord& record);
  void write(const EvalRecord& record);

 private:
  void line(const std::string& text);
  File file_;
  int64_t end_ = 0;
};

struct Metrics {
  std::vector<StepRecord> steps;
  std::vector<EvalRecord> evals;
};
// Throws DS_ERROR_NOT_FOUND, or DS_ERROR_CORRUPT naming the line. A last line that was cut off is left out.
Metrics read_metrics(const std::string& path);

}  // namespace ds
