#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "monitor/run_record.h"

namespace ds {

struct ProgressOptions {
  // The step at which the run ends.
  int64_t steps = 0;
  // Steps completed before this process continued the run.
  int64_t first_step = 0;
  // Steps between plain lines.
  int64_t print_every = 1;
  // Whether a single line of a terminal is redrawn; otherwise plain lines are printed.
  bool bar = false;
  // Width of the terminal in characters.
  int columns = 80;
  // Planned bytes by tier; tiers with 0 bytes are left out.
  TierBytes plan;
};

// The progress of a run, shown on a terminal or as lines of text. Not threadsafe. `out` receives
// text with line ends and control sequences.
class Progress {
 public:
  Progress(const ProgressOptions& options, std::function<void(std::string_view)> out);
  void step(const StepRecord& record);
  void eval(const EvalRecord& record);
  // Prints a line above the bar.
  void message(std::string_view line);
  // Ends the line of the bar, so that its last state stays visible.
  void finish();

  // Returns the expected seconds until the last step, based on a moving average over about 20
  // steps; NaN before the first step.
  double remaining_seconds() const;

 private:
  void draw(const StepRecord& record);
  ProgressOptions options_;
  std::function<void(std::string_view)> out_;
  double seconds_per_step_ = 0;
  int64_t seen_ = 0, last_step_ = 0;
  // The last held-out loss; NaN before the first evaluation.
  double heldout_;
  // Memory that the last plain line showed.
  TierBytes shown_;
  // The text that the terminal's line shows now.
  std::string bar_;
};

// Returns "step  120/400  loss 2.3456  ..." without a line end. A `heldout` of NaN is left out.
std::string progress_line(const StepRecord& record, double heldout, double remaining,
                          const ProgressOptions& options);
// Returns such a line with a bar, which is less than options.columns wide. Parts that do not fit
// are left out.
std::string progress_bar(const StepRecord& record, double heldout, double remaining,
                         const ProgressOptions& options);

// These return whether the descriptor is a terminal that understands control sequences, and the
// terminal's width.
bool is_terminal(int fd);
int terminal_columns(int fd);

}  // namespace ds
