#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>

#include "monitor/append_file.h"
#include "monitor/run_record.h"

namespace ds {

// The CSV files of DeepSpeed's csv_monitor: one for each event, named after it
// ("Train_Samples_lr.csv"), with a header line and lines "samples,value". Samples are those of all
// steps so far.
class ScalarFiles {
 public:
  // Goes on in the files of `folder`, which is made, behind the lines up to and with
  // `kept_samples`. Throws DS_ERROR_IO.
  ScalarFiles(std::string folder, int64_t kept_samples);
  void write(const StepRecord& record);
  void write(const SkippedRecord& record);
  void write(const EvalRecord& record);
  void sync();

 private:
  AppendFile& open(std::string_view event);
  void scalar(std::string_view event, int64_t samples, double value);
  std::string folder_;
  int64_t kept_samples_ = 0;
  std::map<std::string, AppendFile, std::less<>> files_;
};

// metrics.jsonl: a JSON object a line, of a step or of an evaluation; numbers that do not exist are
// null.
class MetricsJsonl {
 public:
  // As ScalarFiles, by steps.
  MetricsJsonl(const std::string& path, int64_t kept_steps);
  void write(const StepRecord& record);
  void write(const SkippedRecord& record);
  void write(const EvalRecord& record);
  void sync() { file_.sync(); }

 private:
  AppendFile file_;
};

// Makes output_path/job_name, the folder of a monitor, with the folders around it; throws
// DS_ERROR_IO.
std::string make_monitor_folder(const std::string& output_path, const std::string& job_name);

}  // namespace ds
