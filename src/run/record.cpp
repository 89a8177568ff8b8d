#include "run/record.h"

#include <unistd.h>

#include <cstdio>

#include "core/base/utf8.h"
#include "io/file.h"

namespace ds {
namespace {

void put(std::string_view text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

}  // namespace

Record::Record(const Config& config, const RunFolder& folder, int64_t first, int quiet,
               const TierBytes& plan) {
  if (quiet < 2) {
    ProgressOptions options;
    options.steps = config.run.steps;
    options.first_step = first;
    options.print_every = config.steps_per_print;
    options.bar = quiet == 0 && is_terminal(STDOUT_FILENO);
    if (options.bar) options.columns = terminal_columns(STDOUT_FILENO);
    options.plan = plan;
    progress_.emplace(options, put);
  }
  if (config.csv_monitor) {
    std::string path = folder.file("metrics.csv");
    bool continued = exists(path);
    csv_.emplace(path, first);
    if (continued) history_ = read_metrics(path);
  }
  if (config.tensorboard) events_.emplace(folder.path);
}

void Record::note(const std::string& line) {
  if (progress_) progress_->message(is_terminal(STDOUT_FILENO) ? show_controls(line) : line);
}

void Record::step(const StepRecord& record) {
  history_.steps.push_back(record);
  if (csv_) csv_->write(record);
  if (events_) events_->write(record);
  if (progress_) progress_->step(record);
}

void Record::eval(const EvalRecord& record) {
  history_.evals.push_back(record);
  if (csv_) csv_->write(record);
  if (events_) events_->write(record);
  if (progress_) progress_->eval(record);
}

void Record::finish() {
  if (progress_) progress_->finish();
}

}  // namespace ds
