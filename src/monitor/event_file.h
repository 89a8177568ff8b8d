#pragma once
#include <cstdint>
#include <string>
#include <string_view>

#include "monitor/append_file.h"
#include "monitor/run_record.h"

namespace ds {

// Scalars for TensorBoard: records of (length, masked CRC32C of the length, Event message, masked CRC32C of
// the message), the messages encoded by hand. One file per object, named so that TensorBoard finds it and no
// two runs of one folder meet.
class EventFile {
 public:
  explicit EventFile(const std::string& folder);  // throws DS_ERROR_IO
  void scalar(std::string_view tag, int64_t step, double value);
  // train/loss, train/lr, train/grad_norm, speed/tokens_per_second, speed/seconds_per_step, memory/<tier>.
  void write(const StepRecord& record);
  void write(const SkippedRecord& record);
  void write(const EvalRecord& record);  // heldout/loss
  void sync() { file_.sync(); }
  const std::string& path() const { return file_.path(); }

 private:
  AppendFile file_;
};

// CRC32C (Castagnoli polynomial, reflected) of the bytes.
uint32_t crc32c(std::string_view bytes);

}  // namespace ds
