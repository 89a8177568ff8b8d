#pragma once
#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "core/base/json.h"
#include "core/base/trace.h"

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
  double seconds = 0;  // wall time of the step
  TierBytes bytes;     // allocated after it
};

struct EvalRecord {
  int64_t step = 0;
  double loss = 0;  // held-out, nats per token
};

struct CommRecord {
  std::string operation;  // "all_gather", ...
  int64_t calls = 0;
  int64_t bytes = 0;
};

// Spans of the ranks' queues (core/base/trace.h).
using RankSpans = std::vector<std::pair<int, std::vector<Trace::Span>>>;

// Everything a report shows. Empty parts are left out.
struct RunSummary {
  std::string title;                                       // "runs/007"
  std::vector<std::pair<std::string, std::string>> facts;  // name and value, shown at the top in this order
  std::vector<StepRecord> steps;
  std::vector<EvalRecord> evals;
  std::vector<std::pair<std::string, double>> baselines;  // name and loss, e.g. {"bigram", 2.86}
  TierBytes plan;                                         // what the memory plan says for one rank
  std::vector<CommRecord> comm;                           // of one rank, over the run
  std::vector<std::vector<std::string>> comm_times;       // rows of one rank's communication log, first names
  RankSpans spans;
  Json config;               // Config::effective(), or any object
  std::string numerics_key;  // one line
  std::string sample;        // generated text
};

}  // namespace ds
