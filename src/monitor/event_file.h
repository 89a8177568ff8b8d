#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "monitor/append_file.h"
#include "monitor/run_record.h"

namespace ds {

// Scalars for TensorBoard: records of (length, masked CRC32C of the length, Event message, masked
// CRC32C of the message), whose messages are encoded by hand. Each object writes a new file, named
// so that TensorBoard finds it and reads it after the files that already are in the folder.
class EventFile {
 public:
  // If `goes_on_from` is set, the files in the folder belong to the same run, which continues after
  // that step. The file then begins with a SessionLog event with status START, which makes
  // TensorBoard drop later steps of the earlier files. Throws DS_ERROR_IO.
  explicit EventFile(const std::string& folder, std::optional<int64_t> goes_on_from = {});
  void scalar(std::string_view tag, int64_t step, double value);
  void rewards(const std::string& of, int64_t step, const RewardRecord& rewards);
  // Writes train/loss, train/lr, train/grad_norm, speed/tokens_per_second, speed/seconds_per_step
  // and memory/<tier>; also train/loss_scale and train/save_seconds if the step has them.
  void write(const StepRecord& record);
  // Writes train/loss and, if the step has one, train/loss_scale.
  void write(const SkippedRecord& record);
  // Writes heldout/loss.
  void write(const EvalRecord& record);
  void sync() { file_.sync(); }
  const std::string& path() const { return file_.path(); }

 private:
  AppendFile file_;
};

// Returns the CRC32C (Castagnoli polynomial, reflected) of the bytes.
uint32_t crc32c(std::string_view bytes);

}  // namespace ds
