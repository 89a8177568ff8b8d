#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "monitor/append_file.h"
#include "monitor/run_record.h"

namespace ds {

// The rows of metrics.csv.
struct Metrics {
  std::vector<StepRecord> steps;
  std::vector<EvalRecord> evals;
};

// The file metrics.csv. It has a line for each step that was not skipped. The line of an evaluation
// follows the line of its step and has only step and heldout_loss. The columns, in one line, are
//   step,loss,heldout_loss,lr,grad_norm,tokens_per_second,seconds,device_bytes,host_bytes,nvme_bytes,
//   loss_scale,save_seconds
// loss_scale is empty in a run without a loss scale, and save_seconds if the step did not wait for
// a checkpoint. Numbers parse back to the same bits. A line is in the file when write() returns,
// unless the file system refuses it (AppendFile).
class MetricsCsv {
 public:
  // Continues an existing file after its last line of a step up to `keep_until`. A file with
  // damaged lines, or with steps that repeat or are out of order, is renamed to PATH.damaged (or
  // PATH.damaged-N if that exists), with a warning, and its good lines are copied. Throws
  // DS_ERROR_IO.
  explicit MetricsCsv(const std::string& path, int64_t keep_until = 0);
  void write(const StepRecord& record);
  void write(const EvalRecord& record);
  void sync() { file_->sync(); }
  // Returns the rows of the existing file that the constructor kept: the undamaged rows of steps up
  // to `keep_until`.
  const Metrics& kept() const { return kept_; }

 private:
  Metrics kept_;
  // Optional, because the body of the constructor creates the object.
  std::optional<AppendFile> file_;
};

// Reads a file. Throws DS_ERROR_NOT_FOUND, or DS_ERROR_CORRUPT naming the line. A last line without
// a line end is ignored.
Metrics read_metrics(const std::string& path);

}  // namespace ds
