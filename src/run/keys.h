#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "core/config/key.h"

namespace ds {

// The section `run` of the configuration.
struct RunKeys {
  // The run folder; "" means the next free runs/NNN.
  std::string dir;
  // A name for the run. If `dir` holds a run that was begun with the same name, that run is
  // continued; "" never continues a run.
  std::string resume;
  // For eval_every and save_every, 0 means only at the end; for eval_samples and keep, 0 means all.
  int64_t steps = 100, eval_every = 0, eval_samples = 0, save_every = 0, keep = 3,
          sample_tokens = 256;
  // The run ends after this many consecutive skipped steps. With a dynamic loss scale, only steps
  // that are skipped at its minimum count.
  int64_t max_skipped_steps = 1;
  // Steps between generated sample texts, the first one before step 1; 0 means a single one at the
  // end.
  int64_t sample_every = 0;
  // Names from kBars. The final held-out loss must be below each of these baselines.
  std::vector<std::string> bars;
  // Whether the run continues on the CPU, with a warning, if its device is missing; if false, the
  // run is refused.
  bool device_fallback = true;
};

// Baselines that run.bars may name.
inline constexpr const char* kBars[] = {"unigram", "bigram", "gzip"};

// Adds the keys of the section `run`.
void run_keys(KeyList& keys);

// Throws DS_ERROR_CONFIG if run.bars has a name that is not in kBars.
void check_bars(const Config& config);
// Adds a warning if the profiler's report is due after the last step of the run.
void warn_of_late_report(Config& config);

}  // namespace ds
