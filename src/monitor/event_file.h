#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "monitor/append_file.h"
#include "monitor/run_record.h"

namespace ds {

// Scalars for TensorBoard: records of (length, masked CRC32C of the length, Event message, masked
// CRC32C of the message), the messages encoded by hand. Each object has a file of its own, whose
// name TensorBoard finds and reads after those that are in the folder.
class EventFile {
 public:
  // goes_on_from: the files that are in the folder are of the same run, which goes on from that
  // step. The file begins with a SessionLog event of status START, at which TensorBoard drops later
  // steps of the earlier files. Throws DS_ERROR_IO.
  explicit EventFile(const std::string& folder, std::optional<int64_t> goes_on_from = {});
  void scalar(std::string_view tag, int64_t step, double value);
  // train/loss, train/lr, train/grad_norm, speed/tokens_per_second, speed/seconds_per_step,
  // memory/<tier>.
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
