#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>

#include "monitor/append_file.h"
#include "monitor/run_record.h"

namespace ds {

// The CSV files of DeepSpeed's csv_monitor: one file for each event, named after it
// ("Train_Samples_lr.csv"), with a header line and lines "samples,value". `samples` is the number
// of samples used since the run began.
class ScalarFiles {
 public:
  // Continues the files in `folder`, which must exist, after the last line with `kept_samples`
  // samples or fewer. Throws DS_ERROR_IO.
  ScalarFiles(std::string folder, int64_t kept_samples);
  void write(const StepRecord& record);
  void write(const SkippedRecord& record);
  void write(const EvalRecord& record);
  void sync();

 private:
  AppendFile& open(std::string_view event);
  void scalar(std::string_view event, int64_t samples, double value);
  void rewards(const std::string& of, int64_t samples, const RewardRecord& rewards);
  std::string folder_;
  int64_t kept_samples_ = 0;
  std::map<std::string, AppendFile, std::less<>> files_;
};

// metrics.jsonl: each line is a JSON object for a step or an evaluation. Numbers that are not
// finite are null.
class MetricsJsonl {
 public:
  // Continues the file after the last line with a step of at most `kept_steps`. Throws DS_ERROR_IO.
  MetricsJsonl(const std::string& path, int64_t kept_steps);
  void write(const StepRecord& record);
  void write(const SkippedRecord& record);
  void write(const EvalRecord& record);
  void sync() { file_.sync(); }

 private:
  AppendFile file_;
};

// Creates output_path/job_name, the folder of a monitor, with its parents, and returns its path.
// Throws DS_ERROR_IO.
std::string make_monitor_folder(const std::string& output_path, const std::string& job_name);

}  // namespace ds
