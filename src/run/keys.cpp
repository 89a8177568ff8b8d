// Registers the keys of the section `run`: the folder of a run, its length, evaluations,
// checkpoints, samples and threads.
#include "run/keys.h"

#include <fmt/core.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <string>

#include "core/base/contains.h"
#include "core/base/json.h"
#include "core/config/config.h"
#include "core/config/refuse.h"
#include "monitor/keys.h"

namespace ds {
namespace {

// Returns the key run.eval_batches, which occurs in run folders of earlier versions. It was a
// number of batches for each rank, so the samples of an evaluation depended on the number of ranks.
Key eval_batches_key() {
  const std::string path = "run.eval_batches";
  auto set = [path](Config& config, const Json& given) {
    read_value<int64_t>(path, given, positive);
    config.warnings.push_back(path +
                              ": has no effect any more: evaluations see all held-out samples, or "
                              "run.eval_samples of them");
  };
  return {path,
          set,
          [](const Config&) { return Json(); },
          KeyKind::integer,
          "a key of earlier versions, which has no effect and causes a warning",
          positive};
}

}  // namespace

// The keys of `general` are fields of Config itself, because lower layers read them.
void run_keys(KeyList& keys) {
  using R = RunKeys;
  KeyRows rows(keys, "run.", of_section<R>);
  KeyRows general(keys, "run.", std::identity());
  rows.nonempty("dir", &R::dir, "run folder").shown("runs/NNN");
  rows.nonempty(
      "resume", &R::resume,
      "a name for the run. If `run.dir` holds a run that was begun with the same name, that run "
      "continues, as with `--resume`; any other run there is refused, as it is without this key. "
      "`libds launch --restarts` gives a name to each job ([launching](launch.md#restarts))");
  rows.add("steps", &R::steps, "the number of optimizer steps", count);
  rows.add("eval_every", &R::eval_every, "steps between evaluations; 0: at the end only", count);
  rows.add("eval_samples", &R::eval_samples,
           "held-out samples that an evaluation sees, spread evenly over all; 0: all. With "
           "`run.bars` the last evaluation sees all ([data.md](data.md#held-out-loss))",
           count);
  rows.put(eval_batches_key());
  rows.add("save_every", &R::save_every, "steps between checkpoints; 0: at the end only", count);
  general.add(
      "async_save", &Config::async_save,
      "also called `checkpoint.writer.decoupled`, DeepSpeed's name: the saves of `save_every` copy "
      "the state to host memory and return; a thread of each rank writes the copy while steps go "
      "on, and the next save waits for it. The last save, also at a signal, is complete when the "
      "run ends. The copy (4 bytes for each element of masters and states that the rank writes) is "
      "`checkpoint copy` of the overhead row; if `memory_budget.host` has no room for it beside "
      "the plan, steps wait for saves, and the log says so");
  rows.add("device_fallback", &R::device_fallback,
           "if a rank does not have the device that `device` names (no driver, an old driver or no "
           "such GPU), the run uses the CPU on every rank, and one warning gives the reason; "
           "false: the run is refused with the same line");
  rows.add("keep", &R::keep,
           "the number of checkpoints to keep: when a newer one is complete, the oldest beyond "
           "this number are removed; 0: all are kept. None is removed before the run has saved a "
           "newer one. The checkpoint that `--resume` names is not removed by that run; a run that "
           "was begun by a version without this key keeps all",
           count);
  rows.add(
      "max_skipped_steps", &R::max_skipped_steps,
      "when this many steps in a row have been skipped because of NaN or infinity in loss or "
      "gradients, the run is saved and ends with DS_ERROR_NUMERIC. Steps that are skipped while a "
      "dynamic loss scale can still fall do not count, because the scale finds its value by them: "
      "with the default, a run ends where DeepSpeed's does, at the first overflow with the scale "
      "at `fp16.min_loss_scale` and no hysteresis left. The batch of a skipped step is used up; "
      "parameters, states, learning rate and bias corrections are as if the step had not been made",
      positive);
  rows.add("sample_tokens", &R::sample_tokens,
           "the number of tokens of a printed sample. Its keys and values (for at most 48 tokens "
           "of prompt and these tokens, or for one sequence) use the memory of a step's "
           "activations: they take no memory while the run trains, and make the plan larger only "
           "if a sample needs more memory than a step",
           count);
  rows.add("sample_every", &R::sample_every,
           "steps between printed samples, with one before the first step; 0: at the end only. "
           "Samples never change the bits of training",
           count);
  rows.add("bars", &R::bars,
           "bounds (`unigram`, `bigram`, `gzip`) that the final held-out loss must be below. If it "
           "is not when all steps are done, the run is written in full and then fails with one "
           "line that names both values; a run that is stopped is not judged. `unigram` and "
           "`bigram` count the tokens of the training text (vocabularies of at most 4096), `gzip` "
           "is the size of the held-out text after `gzip -9` (at most 64 MiB of text)");
  general.add(
      "pin_threads", &Config::pin_threads,
      "each compute thread but the caller's stays on one CPU if the ranks of this machine divide "
      "its cores evenly (as with `threads` 0); false: the system places the threads");
  general.add("seed", &Config::seed, "seed of initial values, data order and dropout");
  general.add("sequence", &Config::sequence, "the number of tokens of a sample", positive);
  general.add(
      "threads", &Config::threads,
      "compute threads per rank, at most 1024; 0: the cores of this machine divided by its ranks",
      Limits{.low = 0, .high = 1024});
}

void check_bars(const Config& c) {
  for (const std::string& bar : c.get<RunKeys>().bars) {
    if (contains(kBars, bar)) continue;
    refuse("run.bars", "\"{}\" is unknown; supported: {}", bar, fmt::join(kBars, ", "));
  }
}

// The default number of steps is not the user's choice, so it causes no warning.
void warn_of_late_report(Config& config) {
  const FlopsProfilerConfig& flops = config.get<MonitorKeys>().flops_profiler;
  const int64_t steps = config.get<RunKeys>().steps;
  if (!flops.enabled || !config.origins.contains("run.steps") || flops.profile_step <= steps)
    return;
  config.warnings.push_back(
      fmt::format("flops_profiler.profile_step: {} is beyond run.steps {}: there will be no report",
                  flops.profile_step, steps));
}

}  // namespace ds
