// Writes files that other programs read. A resumed run repeats steps, so each file is first
// truncated after the last line that the run keeps.
#include "monitor/scalar_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <system_error>
#include <utility>

#include "core/base/error.h"
#include "core/base/json.h"
#include "io/file.h"

namespace ds {
namespace {

constexpr int64_t kMostLines = int64_t{4} << 30;

// Returns the length of the part of a file that is kept: its header and the complete lines after
// it, up to the first line without the text `before` and a number of at most `most` at its
// beginning. Returns 0 if the header differs.
int64_t kept_bytes(std::string_view text, std::string_view header, std::string_view before,
                   int64_t most) {
  if (!text.starts_with(header)) return 0;
  size_t kept = header.size();
  for (size_t end = text.find('\n', kept); end != text.npos; end = text.find('\n', kept)) {
    std::string_view line = text.substr(kept, end - kept);
    if (!line.starts_with(before)) break;
    line.remove_prefix(before.size());
    int64_t number = 0;
    if (std::from_chars(line.data(), line.data() + line.size(), number).ec != std::errc() ||
        number > most)
      break;
    kept = end + 1;
  }
  return static_cast<int64_t>(kept);
}

int64_t kept_bytes_of(const std::string& path, std::string_view header, std::string_view before,
                      int64_t most) {
  return name_exists(path) ? kept_bytes(read_file(path, kMostLines), header, before, most) : 0;
}

// Returns null for NaN and infinity, which JSON does not have.
Json number_or_null(double value) { return std::isfinite(value) ? Json(value) : Json(); }

}  // namespace

// The folder may be on any file system and is not synced, because a resume does not need the
// monitors' files.
std::string make_monitor_folder(const std::string& output_path, const std::string& job_name) {
  const std::filesystem::path folder = std::filesystem::path(output_path) / job_name;
  require_makeable(folder.string());
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error)
    raise(DS_ERROR_IO, "{}: cannot create the folder: {}", folder.string(), error.message());
  return folder.string();
}

ScalarFiles::ScalarFiles(std::string folder, int64_t kept_samples)
    : folder_(std::move(folder)), kept_samples_(kept_samples) {
  for (const char* event :
       {"Train/Samples/train_loss", "Train/Samples/lr", "Train/Samples/grad_norm"})
    open(event);
}

// Returns the file of an event, which is opened when it is first needed.
AppendFile& ScalarFiles::open(std::string_view event) {
  if (auto found = files_.find(event); found != files_.end()) return found->second;
  std::string name(event);
  std::ranges::replace(name, '/', '_');
  const std::string path = fmt::format("{}/{}.csv", folder_, name);
  const std::string header = fmt::format("step,{}\n", event.substr(event.rfind('/') + 1));
  const int64_t kept = kept_bytes_of(path, header, "", kept_samples_);
  AppendFile& file =
      files_.try_emplace(std::string(event), File(path, File::Mode::write), kept).first->second;
  if (kept == 0) file.append(header);
  return file;
}

void ScalarFiles::scalar(std::string_view event, int64_t samples, double value) {
  open(event).append(fmt::format("{},{}\n", samples, value));
}

void ScalarFiles::write(const StepRecord& r) {
  scalar("Train/Samples/train_loss", r.samples, r.loss);
  scalar("Train/Samples/lr", r.samples, r.lr);
  scalar("Train/Samples/grad_norm", r.samples, r.grad_norm);
  rewards("Train/Samples", r.samples, r.rewards);
  if (!std::isnan(r.loss_scale)) scalar("Train/Samples/loss_scale", r.samples, r.loss_scale);
}

void ScalarFiles::write(const SkippedRecord& r) {
  scalar("Train/Samples/train_loss", r.samples, r.loss);
  scalar("Train/Samples/lr", r.samples, r.lr);
  if (!std::isnan(r.loss_scale)) scalar("Train/Samples/loss_scale", r.samples, r.loss_scale);
}

void ScalarFiles::write(const EvalRecord& r) {
  scalar("Eval/Samples/eval_loss", r.samples, r.loss);
  rewards("Eval/Samples", r.samples, r.rewards);
}

void ScalarFiles::rewards(const std::string& of, int64_t samples, const RewardRecord& r) {
  if (!r.measured()) return;
  scalar(of + "/rewards/chosen", samples, r.chosen);
  scalar(of + "/rewards/rejected", samples, r.rejected);
  scalar(of + "/rewards/accuracies", samples, r.accuracy);
  scalar(of + "/rewards/margins", samples, r.margin);
}

void ScalarFiles::sync() {
  for (auto& [event, file] : files_) file.sync();
}

namespace {

constexpr std::string_view kStepMember = R"({"step": )";

void add_rewards(Json& line, const RewardRecord& rewards) {
  if (!rewards.measured()) return;
  line.set("rewards/chosen", number_or_null(rewards.chosen));
  line.set("rewards/rejected", number_or_null(rewards.rejected));
  line.set("rewards/accuracies", number_or_null(rewards.accuracy));
  line.set("rewards/margins", number_or_null(rewards.margin));
}

}  // namespace

// Each line begins with its step, so that a resumed run can find where to truncate.
MetricsJsonl::MetricsJsonl(const std::string& path, int64_t kept_steps)
    : file_(File(path, File::Mode::write), kept_bytes_of(path, "", kStepMember, kept_steps)) {}

void MetricsJsonl::write(const StepRecord& r) {
  Json line = Json::Object{};
  line.set("step", r.step);
  line.set("loss", number_or_null(r.loss));
  line.set("lr", number_or_null(r.lr));
  line.set("grad_norm", number_or_null(r.grad_norm));
  line.set("tokens_per_second", number_or_null(r.tokens_per_second));
  line.set("seconds", number_or_null(r.seconds));
  line.set("loss_scale", number_or_null(r.loss_scale));
  add_rewards(line, r.rewards);
  line.set("save_seconds", r.save_seconds);
  line.set("device_bytes", r.bytes.device);
  line.set("host_bytes", r.bytes.host);
  line.set("nvme_bytes", r.bytes.nvme);
  file_.append(line.dump() + "\n");
}

void MetricsJsonl::write(const SkippedRecord& r) {
  Json line = Json::Object{};
  line.set("step", r.step);
  line.set("skipped", true);
  line.set("loss", number_or_null(r.loss));
  line.set("lr", number_or_null(r.lr));
  line.set("loss_scale", number_or_null(r.loss_scale));
  file_.append(line.dump() + "\n");
}

void MetricsJsonl::write(const EvalRecord& r) {
  Json line = Json::Object{};
  line.set("step", r.step);
  line.set("heldout_loss", number_or_null(r.loss));
  add_rewards(line, r.rewards);
  file_.append(line.dump() + "\n");
}

}  // namespace ds
