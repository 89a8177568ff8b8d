#pragma once
#include <cstdint>
#include <functional>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "monitor/run_record.h"

namespace ds {

inline constexpr double kNoLoss = std::numeric_limits<double>::quiet_NaN();

// State of a run after a step.
struct RunProgress {
  int64_t step = 0;  // steps made
  int64_t steps = 0;
  int64_t samples = 0;  // taken, by the whole run
  double loss = 0;
  double heldout_loss = kNoLoss;  // NaN: not evaluated at this step
  double grad_norm = 0;
  double lr = 0;
  double tokens_per_second = 0;  // of all ranks, this step
  double loss_scale = 1;
  double next_lr = 0;  // of the next step, which a callback may change
};

// Fills tokens and targets (micro_batch * sequence each) of leaf micro_step * world + rank of a
// step; false ends the run.
using BatchCallback = std::function<bool(int64_t step, int32_t micro_step,
                                         std::span<int32_t> tokens, std::span<int32_t> targets)>;

struct TrainOptions {
  std::string resume;  // run folder to go on with, or a checkpoint RUN/checkpoints/NAME; "" starts
                       // a new one
  int quiet = 0;  // 0: progress bar on a terminal, else plain lines; 1: plain lines; 2: nothing
  BatchCallback batch;  // null: the configured data
  std::function<bool(RunProgress&)>
      progress;  // rank 0, after each step; false ends the run; null: none
  const volatile int32_t* stop = nullptr;  // non-zero on any rank ends the run after its step
};

enum class RunEnd {
  finished,
  stopped,
  callback,
  skipped,  // run.max_skipped_steps in a row had NaN or infinity
};

struct RunReport {
  std::string
      folder;  // "" when the run was stopped before its text was read: nothing is left of it
  RunEnd end = RunEnd::finished;
  std::string failure;            // what the engine says of a skipped step
  int64_t step = 0;               // steps made, also by the calls before this one
  int64_t skipped = 0;            // of those that this call made: by NaN or infinity
  double loss_scale = kNoLoss;    // after the last step, with fp16
  int64_t saves = 0;              // by this call
  double save_seconds = 0;        // in which steps waited for these
  double loss = kNoLoss;          // of the last step that was not skipped; NaN: none
  double heldout_loss = kNoLoss;  // of the last evaluation; NaN: none
  double unigram_loss = kNoLoss,
         bigram_loss = kNoLoss;  // held-out, of counted models; NaN without data
  std::string checkpoint;        // path of the last one
  std::vector<SampleRecord>
      samples;  // of this call: before its first step, every run.sample_every, the last
};

}  // namespace ds
