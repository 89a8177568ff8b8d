#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "monitor/append_file.h"
#include "monitor/run_record.h"

namespace ds {

struct Metrics {
  std::vector<StepRecord> steps;
  std::vector<EvalRecord> evals;
};

// metrics.csv: one line per step, and behind it one per evaluation with only step and heldout_loss
// set. Columns:
//   step,loss,heldout_loss,lr,grad_norm,tokens_per_second,seconds,device_bytes,host_bytes,nvme_bytes,
//   loss_scale,save_seconds
// in one line. loss_scale is empty in a run without one, save_seconds where the step waited for no
// checkpoint. Numbers parse back to the same bits. A line is in the file when write returns, unless
// the file system refuses it (AppendFile).
class MetricsCsv {
 public:
  // Goes on behind the lines of an existing file up to and with step `keep_until`. A file with
  // lines that are damaged, doubled or out of order is set aside as PATH.damaged, with a warning,
  // and its good lines are taken over. Throws DS_ERROR_IO.
  explicit MetricsCsv(const std::string& path, int64_t keep_until = 0);
  void write(const StepRecord& record);
  void write(const EvalRecord& record);
  void sync() { file_->sync(); }
  const Metrics& kept() const { return kept_; }  // what the file held that it goes on behind

 private:
  Metrics kept_;
  std::optional<AppendFile> file_;  // after the constructor
};

// Throws DS_ERROR_NOT_FOUND, or DS_ERROR_CORRUPT naming the line. A last line that was cut off is
// left out.
Metrics read_metrics(const std::string& path);

}  // namespace ds
