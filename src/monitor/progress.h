#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "monitor/run_record.h"

namespace ds {

struct ProgressOptions {
  int64_t steps = 0;        // at which the run ends
  int64_t first_step = 0;   // steps taken before this run went on
  int64_t print_every = 1;  // steps between plain lines
  bool bar = false;         // redraw one line (a terminal); false: plain lines
  int columns = 80;         // of the terminal
  TierBytes plan;           // 0: the tier is not shown
};

// What a person sees of a run. Not thread-safe; `out` gets text with its line ends and control
// sequences.
class Progress {
 public:
  Progress(const ProgressOptions& options, std::function<void(std::string_view)> out);
  void step(const StepRecord& record);
  void eval(const EvalRecord& record);
  void message(std::string_view line);  // a line above the bar
  void finish();                        // leaves the last state on its own line

  // Expected seconds until the last step; NaN before the first. From a moving average over about 20
  // steps.
  double remaining_seconds() const;

 private:
  void draw(const StepRecord& record);
  ProgressOptions options_;
  std::function<void(std::string_view)> out_;
  double seconds_per_step_ = 0;
  int64_t seen_ = 0, last_step_ = 0;
  double heldout_;   // NaN: none yet
  TierBytes shown_;  // in the last plain line
  std::string bar_;  // what stands in the terminal's line now
};

// "step  120/400  loss 2.3456  ..." without line end; heldout NaN: left out.
std::string progress_line(const StepRecord& record, double heldout, double remaining,
                          const ProgressOptions& options);
// The same with a bar, at most options.columns wide: parts drop from the right where there is no
// room.
std::string progress_bar(const StepRecord& record, double heldout, double remaining,
                         const ProgressOptions& options);

// Whether descriptor fd is a terminal that understands control sequences, and its width.
bool is_terminal(int fd);
int terminal_columns(int fd);

}  // namespace ds
