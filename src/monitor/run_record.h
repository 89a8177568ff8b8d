#pragma once
#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "core/base/json.h"
#include "core/base/trace.h"
#include "monitor/plan_picture.h"

namespace ds {

// Monitors receive only the plain values below, so they do not depend on the engine.

// Bytes of memory in each tier.
struct TierBytes {
  // Bytes of one rank.
  int64_t device = 0, host = 0, nvme = 0;
  bool operator==(const TierBytes&) const = default;
};

// Means over pairs of a chosen and a rejected text; NaN in a run on other data.
struct RewardRecord {
  double chosen = std::numeric_limits<double>::quiet_NaN(), rejected = chosen;
  // The share of pairs whose chosen text has the larger reward, and the mean difference.
  double accuracy = chosen, margin = chosen;
  bool measured() const { return chosen == chosen; }
};

// One optimizer step. Values that do not exist are NaN.
struct StepRecord {
  // Number of the step, counted from 1.
  int64_t step = 0;
  // Training loss, in nats per token.
  double loss = 0;
  double lr = 0;
  // Norm of the gradient before clipping.
  double grad_norm = 0;
  double tokens_per_second = 0;
  // Wall time of the step, in seconds.
  double seconds = 0;
  // Bytes allocated after the step.
  TierBytes bytes;
  // Loss scale of the step; NaN if the run has no loss scaler.
  double loss_scale = std::numeric_limits<double>::quiet_NaN();
  // Seconds that the step waited for checkpoints before it began.
  double save_seconds = 0;
  // Samples used up to and including this step.
  int64_t samples = 0;
  RewardRecord rewards;
};

// A skipped step, which updated nothing. Values that do not exist are NaN.
struct SkippedRecord {
  int64_t step = 0;
  double loss = 0;
  double lr = 0;
  // Loss scale of the step; NaN if the run has no loss scaler.
  double loss_scale = std::numeric_limits<double>::quiet_NaN();
  // Samples used up to and including this step.
  int64_t samples = 0;
};

// One evaluation on held-out text.
struct EvalRecord {
  int64_t step = 0;
  // Loss on held-out text, in nats per token.
  double loss = 0;
  // Samples used by the steps before the evaluation.
  int64_t samples = 0;
  RewardRecord rewards;
};

// Calls and bytes of one collective.
struct CommRecord {
  // Name of the operation, such as "all_gather".
  std::string operation;
  int64_t calls = 0;
  int64_t bytes = 0;
};

// Text that the model generated after a step; step 0 means before the first step.
struct SampleRecord {
  int64_t step = 0;
  // The text that the sample continues, which is the same for all samples of a run.
  std::string prompt;
  std::string text;
};

// Spans of the ranks' queues (core/base/trace.h), by rank. Besides its queues, a rank has the track
// kStepTrack, with one span named "step N" for each recorded step. The clocks of the ranks may
// differ.
inline constexpr const char* kStepTrack = "step";
using RankSpans = std::vector<std::pair<int, std::vector<Trace::Span>>>;

// Everything that a report can show. Parts without data are left out.
struct RunSummary {
  // Title of the report, such as "runs/007".
  std::string title;
  // How the run ended, such as "finished" or "stopped by its caller".
  std::string end;
  // The first step of this process; earlier steps belong to the run that it resumed.
  int64_t first_step = 1;
  // Steps of this process that updated nothing because of NaN or infinity.
  int64_t skipped = 0;
  // Loss scale after the last step; NaN if the run has no loss scaler.
  double loss_scale = std::numeric_limits<double>::quiet_NaN();
  // Checkpoints that this process saved, and the seconds that steps waited for them.
  int64_t saves = 0;
  double save_seconds = 0;
  // Whether a thread wrote all checkpoints but the last one while steps continued.
  bool saves_started = false;
  // Number of elements; 0 means not known.
  int64_t parameters = 0;
  // Number of ranks, and of compute threads per rank.
  int ranks = 0, threads = 0;
  // Name of rank 0's processor.
  std::string processor;
  // Bytes of rank 0 outside the memory plan.
  int64_t overhead = 0;
  // Names and values of further facts.
  std::vector<std::pair<std::string, std::string>> facts;
  std::vector<StepRecord> steps;
  std::vector<EvalRecord> evals;
  // Names and held-out losses, such as {"bigram", 2.86}.
  std::vector<std::pair<std::string, double>> baselines;
  // The number of bits per byte of held-out text that equals one nat per token.
  double bits_a_byte = std::numeric_limits<double>::quiet_NaN();
  // The part of the held-out text that the last evaluation used, as in "64 of the 700 held-out
  // samples"; "" means all of it.
  std::string seen_heldout;
  // Bytes of the memory plan for one rank.
  TierBytes plan;
  // Bytes that the configuration allows for the plan; -1 means no limit.
  TierBytes budget{-1, -1, -1};
  // Collectives of one rank in this process.
  std::vector<CommRecord> comm;
  // Rows of one rank's communication log; the first row has the column names.
  std::vector<std::vector<std::string>> comm_times;
  RankSpans spans;
  // The result of Config::effective(), or any other object.
  Json config;
  // The numerics key, in one line.
  std::string numerics_key;
  // In ascending order of steps.
  std::vector<SampleRecord> samples;
  // Columns of the picture of the plan, and the note below it.
  std::vector<PlanColumn> plan_columns;
  std::string plan_note;
};

}  // namespace ds
