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
          "a key of earlier versions: it has no effect, and a warning says so",
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
      "a name for the run. Where `run.dir` holds a run that was begun with the same name, it "
      "goes on as with `--resume`; any other run there is refused, as without this key. "
      "`libds launch --restarts` gives a name to each job ([launching](launch.md#restarts))");
  rows.add("steps", &R::steps, "optimizer steps", count);
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
      "`checkpoint copy` of the overhead row; where `memory_budget.host` has no room for it beside "
      "the plan, steps wait for saves and the log says so");
  rows.add("device_fallback", &R::device_fallback,
           "where a rank has no device of the name in `device` (no driver or an old one, no such "
           "GPU), the run goes on with the CPU on every rank and says so in one warning with the "
           "reason; false refuses it with the same line");
  rows.add("keep", &R::keep,
           "checkpoints to keep: when a newer one is complete, the oldest beyond this number are "
           "removed; 0: keep all. None is removed before the run has saved a newer one. The "
           "checkpoint that `--resume` names is not removed by that run; a run that was begun by a "
           "version without this key keeps all",
           count);
  rows.add("max_skipped_steps", &R::max_skipped_steps,
           "steps in a row that NaN or infinity in loss or gradients may skip: the run is saved "
           "and ends with DS_ERROR_NUMERIC at this many. Steps that a dynamic loss scale skips "
           "while it can still fall do not count, because it finds its place by them: with the "
           "default a run ends where DeepSpeed's does, at the first overflow at "
           "`fp16.min_loss_scale` with no hysteresis left. The batch of a skipped step is used up; "
           "parameters, states, learning rate and bias corrections are as if it had not been",
           positive);
  rows.add(
      "sample_tokens", &R::sample_tokens,
      "length of a printed sample. The keys and values of its text (at most 48 tokens of prompt "
      "and these, or a sequence) lie where a step has its activations: nothing is held for them "
      "while the run trains, and only a sample that needs more than a step makes the plan larger",
      count);
  rows.add("sample_every", &R::sample_every,
           "steps between samples, with one before the first step; 0: at the end only. Samples "
           "never change bits",
           count);
  rows.add("bars", &R::bars,
           "`unigram`, `bigram`, `gzip`: what the final held-out loss must be below. When all "
           "steps are done and it is not, the run is written in full and then fails with one line "
           "that names both values; a run that is stopped is not judged. `unigram` and `bigram` "
           "count the tokens of the training text (vocabularies of at most 4096), `gzip` is the "
           "size of the held-out text after `gzip -9` (at most 64 MiB of text)");
  general.add(
      "pin_threads", &Config::pin_threads,
      "keep each compute thread but the caller's on one CPU, where the ranks of this machine have "
      "shared out its cores evenly (as with `threads` 0); false: the system places them");
  general.add("seed", &Config::seed, "seed of initial values, data order and dropout");
  general.add("sequence", &Config::sequence, "tokens of one sample", positive);
  general.add("threads", &Config::threads,
              "compute threads a rank, at most 1024; 0: cores / ranks of this machine",
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
