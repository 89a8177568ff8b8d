#include "run/run_log.h"

#include <fmt/core.h>
#include <stdio_ext.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <system_error>
#include <utility>

#include "core/base/error.h"
#include "core/base/log.h"
#include "core/base/signals.h"
#include "core/base/utf8.h"
#include "io/file.h"
#include "monitor/keys.h"
#include "monitor/run_record.h"
#include "run/keys.h"

namespace ds {

// Writing to a closed pipe raises SIGPIPE, which would end the process, so the signals of writes
// are blocked meanwhile.
bool print_out(std::string_view text) {
  SignalsBlocked blocked(SignalsBlocked::Which::of_writes);
  if (std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0)
    return true;
  int error = errno;
  // Drops the unwritten rest; otherwise it would be written again at exit, without blocked signals.
  __fpurge(stdout);
  errno = error;
  return false;
}

void dispensable(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    log_line(LogLevel::warning, fmt::format("{}; the run goes on without it", error.what()));
  }
}

// Each file is optional: if it cannot be created, a warning is logged and the run continues.
RunLog::RunLog(int64_t steps, const MonitorKeys& keys, const RunFolder& folder, int64_t first,
               int64_t samples, int quiet, const TierBytes& plan) {
  if (quiet < 2) {
    ProgressOptions options;
    options.steps = steps;
    options.first_step = first;
    options.print_every = keys.steps_per_print;
    options.bar = quiet == 0 && is_terminal(STDOUT_FILENO);
    if (options.bar) options.columns = terminal_columns(STDOUT_FILENO);
    options.plan = plan;
    progress_.emplace(options, [this](std::string_view text) { print(text); });
  }
  if (keys.csv_monitor.enabled) {
    dispensable([&] {
      csv_.emplace(folder.file("metrics.csv"), first);
      history_ = csv_->kept();
    });
  }
  auto folder_of = [&](const MonitorConfig& monitor) {
    return monitor.output_path.empty() ? folder.path
                                       : make_monitor_folder(monitor.output_path, monitor.job_name);
  };
  if (keys.csv_monitor.enabled && !keys.csv_monitor.output_path.empty()) {
    dispensable([&] { scalars_.emplace(folder_of(keys.csv_monitor), samples); });
  }
  if (keys.jsonl_monitor.enabled)
    dispensable([&] { lines_.emplace(folder_of(keys.jsonl_monitor) + "/metrics.jsonl", first); });
  if (keys.tensorboard.enabled) {
    // An output folder other than the run folder may contain files of other runs. A new run
    // therefore leaves all files there untouched.
    const bool goes_on = first > 0 || keys.tensorboard.output_path.empty();
    dispensable([&] {
      events_.emplace(folder_of(keys.tensorboard), goes_on ? std::optional(first) : std::nullopt);
    });
  }
}

// Warns at the first failure; later lines are dropped.
void RunLog::print(std::string_view text) {
  if (print_out(text) || std::exchange(deaf_, true)) return;
  log_line(LogLevel::warning, fmt::format("standard output: {}; the run goes on",
                                          std::generic_category().message(errno)));
}

// Control characters in a text, such as a sample, could move the cursor, so on a terminal they are
// shown as visible symbols.
void RunLog::note(const std::string& line) {
  if (progress_) progress_->message(is_terminal(STDOUT_FILENO) ? show_controls(line) : line);
}

void RunLog::step(const StepRecord& record) {
  history_.steps.push_back(record);
  if (csv_) csv_->write(record);
  if (events_) events_->write(record);
  if (scalars_) scalars_->write(record);
  if (lines_) lines_->write(record);
  if (progress_) progress_->step(record);
}

// metrics.csv has rows only for steps that were not skipped. The other files have rows for all
// steps.
void RunLog::skipped(const SkippedRecord& record) {
  if (events_) events_->write(record);
  if (scalars_) scalars_->write(record);
  if (lines_) lines_->write(record);
}

void RunLog::eval(const EvalRecord& record) {
  history_.evals.push_back(record);
  if (csv_) csv_->write(record);
  if (events_) events_->write(record);
  if (scalars_) scalars_->write(record);
  if (lines_) lines_->write(record);
  if (progress_) progress_->eval(record);
}

void RunLog::finish() {
  if (progress_) progress_->finish();
  sync();
}

void RunLog::sync() {
  if (csv_) csv_->sync();
  if (events_) events_->sync();
  if (scalars_) scalars_->sync();
  if (lines_) lines_->sync();
}

}  // namespace ds
