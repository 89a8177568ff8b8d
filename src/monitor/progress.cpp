#include "monitor/progress.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <vector>

#include "core/base/bytes_text.h"
#include "monitor/readable_text.h"

namespace ds {
namespace {

constexpr int bar_cells = 20;

// Returns the share of the run that is done, which is 1 for a run of 0 steps.
double share_done(int64_t step, int64_t steps) {
  if (steps <= 0) return 1;
  return std::clamp(static_cast<double>(step) / static_cast<double>(steps), 0.0, 1.0);
}

// Returns a bar, drawn in eighths of a character cell.
std::string bar_text(double share) {
  static constexpr const char* parts[] = {"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
  int eighths = static_cast<int>(share * bar_cells * 8);
  std::string text;
  for (int i = 0; i < eighths / 8; ++i) text += "█";
  text += parts[eighths % 8];
  int used = eighths / 8 + (eighths % 8 > 0 ? 1 : 0);
  for (int i = used; i < bar_cells; ++i) text += "·";
  return text;
}

// Returns text such as "host 1.2 GiB/1.3 GiB", used and planned bytes, for each tier that is
// planned or used.
std::string memory_text(const TierBytes& now, const TierBytes& plan) {
  std::string text;
  auto add = [&](const char* tier, int64_t used, int64_t planned) {
    if (used == 0 && planned == 0) return;
    text += fmt::format("{}{} {}/{}", text.empty() ? "" : "  ", tier, bytes_text(used),
                        bytes_text(planned));
  };
  add("device", now.device, plan.device);
  add("host", now.host, plan.host);
  add("nvme", now.nvme, plan.nvme);
  return text;
}

std::string loss_text(const StepRecord& record, double heldout) {
  std::string text = fmt::format("loss {:.4f}", record.loss);
  if (!std::isnan(heldout)) text += fmt::format(" (held out {:.4f})", heldout);
  return text;
}

std::string step_text(const StepRecord& record, const ProgressOptions& options) {
  std::string total = std::to_string(options.steps);
  return fmt::format("{:>{}}/{}", record.step, total.size(), total);
}

// Returns, for example, "  scale 65536", or "" without a loss scale.
std::string scale_text(const StepRecord& record) {
  return std::isnan(record.loss_scale) ? "" : fmt::format("  scale {}", record.loss_scale);
}

// Returns, for example, "  rewards 0.0120 -0.0340  margin 0.0460  accuracy 0.750", or "" without
// pairs.
std::string rewards_text(const RewardRecord& rewards) {
  if (!rewards.measured()) return "";
  return fmt::format("  rewards {:.4f} {:.4f}  margin {:.4f}  accuracy {:.3f}", rewards.chosen,
                     rewards.rejected, rewards.margin, rewards.accuracy);
}

// Returns the width of a text on a terminal, assuming one column for each UTF-8 character.
size_t columns_of(std::string_view text) {
  return static_cast<size_t>(
      std::ranges::count_if(text, [](char c) { return (c & 0xc0) != 0x80; }));
}

}  // namespace

std::string progress_line(const StepRecord& record, double heldout, double remaining,
                          const ProgressOptions& options) {
  std::string text = fmt::format(
      "step {}  {}{}  lr {:.3e}  norm {:.3f}{}  {} tokens/s  ETA {}", step_text(record, options),
      loss_text(record, heldout), rewards_text(record.rewards), record.lr, record.grad_norm,
      scale_text(record), count_text(record.tokens_per_second), duration_text(remaining));
  std::string memory = memory_text(record.bytes, options.plan);
  return memory.empty() ? text : text + "  " + memory;
}

// The parts are in order of importance. A part that does not fit is skipped; a later, shorter one
// may still fit.
std::string progress_bar(const StepRecord& record, double heldout, double remaining,
                         const ProgressOptions& options) {
  double share = share_done(record.step, options.steps);
  std::vector<std::string> parts{step_text(record, options),
                                 bar_text(share),
                                 fmt::format("{:3.0f}%", std::floor(share * 100)),
                                 loss_text(record, heldout),
                                 count_text(record.tokens_per_second) + " tok/s",
                                 "ETA " + duration_text(remaining),
                                 memory_text(record.bytes, options.plan)};
  // The last column stays empty, since some terminals wrap a line that fills it.
  auto room = static_cast<size_t>(std::max(options.columns - 1, 0));
  std::string text;
  size_t used = 0;
  for (const std::string& part : parts) {
    size_t width = columns_of(part) + (used == 0 ? 0 : 2);
    if (part.empty() || used + width > room) continue;
    text += (used == 0 ? "" : "  ") + part;
    used += width;
  }
  return text;
}

Progress::Progress(const ProgressOptions& options, std::function<void(std::string_view)> out)
    : options_(options),
      out_(std::move(out)),
      last_step_(options.first_step),
      heldout_(std::numeric_limits<double>::quiet_NaN()) {
  options_.print_every = std::max<int64_t>(options_.print_every, 1);
}

double Progress::remaining_seconds() const {
  if (seen_ == 0) return std::numeric_limits<double>::quiet_NaN();
  return seconds_per_step_ * static_cast<double>(std::max<int64_t>(options_.steps - last_step_, 0));
}

void Progress::step(const StepRecord& record) {
  ++seen_;
  last_step_ = record.step;
  // Averages the first 20 steps equally, then exponentially, so that the effect of a slow first
  // step fades.
  double weight = 1.0 / static_cast<double>(std::min<int64_t>(seen_, 20));
  seconds_per_step_ += weight * (record.seconds - seconds_per_step_);
  draw(record);
}

// On a terminal, "\r" and the control sequence "erase line" replace the bar of the previous step.
void Progress::draw(const StepRecord& record) {
  if (options_.bar) {
    bar_ = progress_bar(record, heldout_, remaining_seconds(), options_);
    out_("\r\x1b[2K" + bar_);
  } else if (record.step % options_.print_every == 0 || record.step == options_.steps ||
             seen_ == 1) {
    // A line shows memory only if it has changed since the previous line.
    bool same = seen_ > 1 && record.bytes == shown_;
    shown_ = record.bytes;
    StepRecord line = record;
    ProgressOptions options = options_;
    if (same) line.bytes = options.plan = TierBytes();
    out_(progress_line(line, heldout_, remaining_seconds(), options) + "\n");
  }
}

void Progress::eval(const EvalRecord& record) {
  heldout_ = record.loss;
  message(fmt::format("step {}  held-out loss {:.4f}{}", record.step, record.loss,
                      rewards_text(record.rewards)));
}

// Erases the bar, prints the line in its place, and draws the bar on the next line.
void Progress::message(std::string_view line) {
  if (bar_.empty()) {
    out_(std::string(line) + "\n");
  } else {
    out_("\r\x1b[2K" + std::string(line) + "\n" + bar_);
  }
}

void Progress::finish() {
  if (!bar_.empty()) out_("\n");
  bar_.clear();
}

bool is_terminal(int fd) {
  const char* term = std::getenv("TERM");
  return ::isatty(fd) == 1 && term && std::string_view(term) != "dumb";
}

// Returns 80 if the terminal does not report its width.
int terminal_columns(int fd) {
  winsize size{};
  return ::ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

}  // namespace ds
