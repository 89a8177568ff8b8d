#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "comm/flight.h"
#include "core/base/trace.h"
#include "data/batch_rows.h"
#include "engine/engine.h"
#include "monitor/run_record.h"
#include "run/data.h"
#include "run/folder.h"
#include "run/inputs.h"
#include "run/keys.h"
#include "run/run_log.h"
#include "run/train_options.h"

namespace ds {

// Returns how many of the `all` held-out rows an evaluation uses: run.eval_samples, or all. `last`
// means the last evaluation of the run, which must use all rows if run.bars is set.
int64_t heldout_rows_seen(const RunKeys& keys, int64_t all, bool last);

// A folder for flight records: while this object exists, ranks write their flight records to
// `folder` if their group fails, unless another folder was set before.
class FlightFolder {
 public:
  FlightFolder(Communicator& comm, const std::string& folder)
      : comm_(comm), own_(comm.flight().folder().empty()) {
    if (own_) comm_.flight().set_folder(folder);
  }
  ~FlightFolder() {
    if (own_) comm_.flight().set_folder("");
  }
  FlightFolder(const FlightFolder&) = delete;
  FlightFolder& operator=(const FlightFolder&) = delete;

 private:
  Communicator& comm_;
  const bool own_;
};

// The steps of one run on one rank: trains, evaluates and saves until the last step, a stop that
// all ranks agree on, or too many consecutive steps that are skipped because of NaN or infinity.
// All ranks make the same calls. The arguments of the constructor are borrowed, except `loaded`.
class Loop {
 public:
  // `loaded` is the path of the checkpoint that the run continues from, or "". `record` is null on
  // all ranks except 0, and may be null there.
  Loop(Engine& engine, ModelInputs& inputs, RunData& data, const RunFolder& folder,
       const TrainOptions& options, const std::string& loaded, RunLog* record);
  RunReport run();
  // Returns the current mean held-out loss: infinity if it is not finite, and NaN without targets
  // or if a stop is requested. `last` says that this is the last evaluation of the run.
  double evaluate(bool last);
  // Returns spans of a few steps early in the run.
  const std::vector<Trace::Span>& spans() const { return spans_; }

 private:
  // A rank's request at the beginning of a step. The largest one of all ranks applies to all.
  enum class Wish : uint8_t { go_on = 0, stop, end_by_callback };

  // Fills the batches of the step and returns the request of this rank.
  Wish prepare(int64_t step);
  // Trains one step, records it, and evaluates, samples and saves if due. Returns false if the run
  // must end because run.max_skipped_steps consecutive steps were skipped.
  bool step();
  // Generates a sample text, stores it in the report and logs it.
  void sample();
  // Saves a checkpoint. If `started` is set, a thread writes the checkpoint, and the next save or
  // the end of the run waits for the thread.
  void save(int64_t step, bool started);
  // Waits for a started save, if there is one.
  void finish_save();
  // Saves between steps, asynchronously with run.async_save if the copy of the state fits. An I/O
  // error is only a warning.
  void try_save(int64_t step);
  // Runs `body` and turns an I/O error into a warning.
  void tried(const std::function<void()>& body);
  // Runs a part of the save of `step`, adds the time that it takes to save_seconds_, and names the
  // step in errors.
  void timed_save(int64_t step, const std::function<void()>& body);
  // Returns the mean rewards of the last step over the pairs of all ranks. Collective if the loss
  // compares pairs.
  RewardRecord step_rewards();
  // Reports a step. `tokens` is its number of tokens without padding.
  void observe(const StepResult& result, double heldout, double tokens, double seconds);
  // Sets, on all ranks, the learning rate that rank 0's callback has requested.
  void take_rate();
  // Takes the spans of the queues since the last call, and stores them, with a span for the step
  // itself, if the trace is to show this step.
  void keep_spans(int64_t step, int64_t begin, int64_t end);
  // Returns the number of tokens in a micro-batch of this step, which a curriculum may reduce.
  int64_t tokens_of(int64_t step) const;
  // Returns views of the first `micros` micro-batches of `tokens` tokens each.
  std::vector<InputView> views(int64_t micros, int64_t tokens);
  // Returns `count` tokens of the batch, starting at index `at`, with the model's other inputs.
  BatchRows rows(size_t at, size_t count);

  Engine& engine_;
  ModelInputs& inputs_;
  RunData& data_;
  const RunFolder& folder_;
  const TrainOptions& options_;
  // Path of the checkpoint that the run continues from, or "".
  const std::string loaded_;
  int64_t saves_ = 0;
  RunLog* log_;
  const Config& config_;
  const RunKeys& keys_;
  // Number of tokens in one micro-batch.
  const int64_t batch_tokens_;
  // The members of BatchRows for all micro-batches of a step; the last three may be empty.
  std::vector<int32_t> tokens_, targets_, begins_, counted_;
  std::vector<float> reference_;
  std::vector<Trace::Span> spans_;
  // The rewards of the last step and of the last evaluation.
  RewardRecord rewards_, heldout_rewards_;
  // Number of steps completed before this loop.
  int64_t first_ = 0;
  // Step of the last complete save; -1 if there is none.
  int64_t saved_ = -1;
  // Step whose started save has not ended; -1 if there is none.
  int64_t started_ = -1;
  // Time that steps have waited for saves since the last row of metrics.
  double save_seconds_ = 0;
  // Number of steps since the last one that was not skipped, without those that a dynamic loss
  // scale skips above its minimum.
  int64_t skips_ = 0;
  bool callback_ended_ = false;
  // Whether any rank has a progress callback; known on all ranks.
  bool asks_rate_ = false;
  // The learning rate that the callback has requested after this step.
  std::optional<double> set_rate_;
  RunReport report_;
  // Set at the first step, because a run without steps must leave no files.
  std::optional<FlightFolder> flight_;
};

}  // namespace ds
