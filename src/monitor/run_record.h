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

// What monitors are fed with: plain values, so that they know nothing of the engine.

struct TierBytes {
  int64_t device = 0, host = 0, nvme = 0;  // of one rank
  bool operator==(const TierBytes&) const = default;
};

// One optimizer step. NaN where a value does not exist.
struct StepRecord {
  int64_t step = 0;  // steps taken, counted from 1
  double loss = 0;   // nats per token
  double lr = 0;
  double grad_norm = 0;  // before clipping
  double tokens_per_second = 0;
  double seconds = 0;                                            // wall time of the step
  TierBytes bytes;                                               // allocated after it
  double loss_scale = std::numeric_limits<double>::quiet_NaN();  // of the step; NaN: there is none
  double save_seconds = 0;  // that the step waited for checkpoints, before it began
  int64_t samples = 0;      // taken up to and with it
};

// A step that updated nothing. NaN where a value does not exist.
struct SkippedRecord {
  int64_t step = 0;
  double loss = 0;
  double lr = 0;
  double loss_scale = std::numeric_limits<double>::quiet_NaN();  // of the step; NaN: there is none
  int64_t samples = 0;                                           // taken up to and with it
};

struct EvalRecord {
  int64_t step = 0;
  double loss = 0;      // held-out, nats per token
  int64_t samples = 0;  // taken by the steps before
};

struct CommRecord {
  std::string operation;  // "all_gather", ...
  int64_t calls = 0;
  int64_t bytes = 0;
};

// Text that the model wrote after a step (0: before the first one).
struct SampleRecord {
  int64_t step = 0;
  std::string prompt;  // what it continues; the same in all samples of a run
  std::string text;
};

// Spans of the ranks' queues (core/base/trace.h). Besides the queues a rank has the track
// kStepTrack: one span per recorded step, named "step N". Clocks of different ranks need not agree.
inline constexpr const char* kStepTrack = "step";
using RankSpans = std::vector<std::pair<int, std::vector<Trace::Span>>>;

// Everything a report shows. Empty parts are left out.
struct RunSummary {
  std::string title;       // "runs/007"
  std::string end;         // "finished", "stopped by its caller", ...
  int64_t first_step = 1;  // of this process; earlier steps are of the run that it resumed
  int64_t skipped = 0;     // steps of this process that updated nothing: NaN or infinity
  double loss_scale =
      std::numeric_limits<double>::quiet_NaN();  // behind the last step; NaN: there is none
  int64_t saves = 0;                             // checkpoints of this process
  double save_seconds = 0;                       // in which steps waited for them
  bool saves_started = false;  // written by a thread while steps went on, but for the last
  int64_t parameters = 0;      // elements; 0: not known
  int ranks = 0, threads = 0;  // threads: that compute, of one rank
  std::string processor;       // of rank 0
  int64_t overhead = 0;        // bytes of rank 0 outside the memory plan
  std::vector<std::pair<std::string, std::string>>
      facts;  // name and value of what else there is to know
  std::vector<StepRecord> steps;
  std::vector<EvalRecord> evals;
  std::vector<std::pair<std::string, double>> baselines;  // name and loss, e.g. {"bigram", 2.86}
  double bits_a_byte =
      std::numeric_limits<double>::quiet_NaN();  // of held-out text for a nat a token
  std::string seen_heldout;  // "64 of the 700 held-out samples": of which the last evaluation is;
                             // "": of all
  TierBytes plan;            // what the memory plan says for one rank
  TierBytes budget{-1, -1, -1};  // what the configuration allows it; -1: no limit
  std::vector<CommRecord> comm;  // of one rank, over the run
  std::vector<std::vector<std::string>>
      comm_times;  // rows of one rank's communication log, first names
  RankSpans spans;
  Json config;                           // Config::effective(), or any object
  std::string numerics_key;              // one line
  std::vector<SampleRecord> samples;     // ascending steps
  std::vector<PlanColumn> plan_columns;  // of the picture of the plan
  std::string plan_note;                 // below it
};

}  // namespace ds
