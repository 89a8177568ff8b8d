#pragma once
#include <cstdint>
#include <functional>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "monitor/run_record.h"

namespace ds {

// A loss that was not measured.
inline constexpr double kNoLoss = std::numeric_limits<double>::quiet_NaN();

// The state of a run after a step.
struct RunProgress {
  // Number of steps completed, and the step at which the run ends.
  int64_t step = 0;
  int64_t steps = 0;
  // Samples that the run has used since its step 0.
  int64_t samples = 0;
  double loss = 0;
  // NaN if this step had no evaluation.
  double heldout_loss = kNoLoss;
  double grad_norm = 0;
  double lr = 0;
  // Tokens per second of all ranks together in this step.
  double tokens_per_second = 0;
  double loss_scale = 1;
  // The learning rate of the next step. A callback may change it.
  double next_lr = 0;
};

// Fills tokens and targets (micro_batch * sequence each) of leaf micro_step * world + rank of a
// step. Returns false to end the run.
using BatchCallback = std::function<bool(int64_t step, int32_t micro_step,
                                         std::span<int32_t> tokens, std::span<int32_t> targets)>;

// Options of train() other than the configuration.
struct TrainOptions {
  // The run folder to continue, or its checkpoint RUN/checkpoints/NAME; "" starts a new run.
  std::string resume;
  // 0: a progress bar on a terminal, otherwise plain lines; 1: plain lines; 2: no output.
  int quiet = 0;
  // Supplies the batches; null means the configured data.
  BatchCallback batch;
  // Called on rank 0 after each step that was not skipped; returns false to end the run. May be
  // null.
  std::function<bool(RunProgress&)> progress;
  // A non-zero value on any rank ends the run after the current step.
  const volatile int32_t* stop = nullptr;
};

// The reason why a run ended.
enum class RunEnd {
  finished,
  stopped,
  callback,
  // run.max_skipped_steps consecutive steps had NaN or infinity.
  skipped,
};

// The result of train(). Losses are in nats per token.
struct RunReport {
  // Path of the run folder; "" if the run was stopped before its text was read and leaves no files.
  std::string folder;
  RunEnd end = RunEnd::finished;
  // The engine's reason for the last skipped step, if `end` is `skipped`.
  std::string failure;
  // Steps completed, including the steps of earlier calls.
  int64_t step = 0;
  // Steps of this call that were skipped because of NaN or infinity.
  int64_t skipped = 0;
  // The loss scale after the last step, with fp16.
  double loss_scale = kNoLoss;
  // Saves of this call, and the seconds that steps waited for them.
  int64_t saves = 0;
  double save_seconds = 0;
  // Loss of the last step that was not skipped; NaN if all were skipped.
  double loss = kNoLoss;
  // Held-out loss of the last evaluation; NaN if there was none.
  double heldout_loss = kNoLoss;
  // Held-out losses of counted models; NaN if not measured.
  double unigram_loss = kNoLoss, bigram_loss = kNoLoss;
  // Path of the last checkpoint.
  std::string checkpoint;
  // Texts generated in this call: before step 1 and every run.sample_every steps if that key is
  // set, and after the last step of run.steps.
  std::vector<SampleRecord> samples;
};

}  // namespace ds
