#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/base/trace.h"
#include "data/batch_rows.h"
#include "engine/engine.h"
#include "run/data.h"
#include "run/folder.h"
#include "run/inputs.h"
#include "run/run_log.h"
#include "run/train_options.h"

namespace ds {

// Rows of the `all` held-out ones that an evaluation sees: run.eval_samples of them, or all. last:
// the run's last evaluation, which run.bars judge by all.
int64_t heldout_rows_seen(const Config& config, int64_t all, bool last);

// While it lives, ranks whose group ends leave their flight records in `folder`, unless another one
// was set.
class FlightFolder {
 public:
  FlightFolder(Communicator& comm, const std::string& folder)
      : comm_(comm), own_(comm.flight_folder().empty()) {
    if (own_) comm_.set_flight_folder(folder);
  }
  ~FlightFolder() {
    if (own_) comm_.set_flight_folder("");
  }
  FlightFolder(const FlightFolder&) = delete;
  FlightFolder& operator=(const FlightFolder&) = delete;

 private:
  Communicator& comm_;
  const bool own_;
};

// The steps of one run on one rank: train, evaluate, save, until the last step, an agreed stop, or
// too many steps in a row that are skipped for NaN or infinity. All ranks make the same calls.
// Everything is borrowed.
class Loop {
 public:
  // loaded: path of the checkpoint that the run goes on from, or "". record is null on all ranks
  // but 0.
  Loop(Engine& engine, ModelInputs& inputs, RunData& data, const RunFolder& folder,
       const TrainOptions& options, const std::string& loaded, RunLog* record);
  RunReport run();
  // Mean loss of the held-out targets now; NaN without any. last: of the run's last evaluation.
  double evaluate(bool last);
  const std::vector<Trace::Span>& spans() const {
    return spans_;
  }  // of a few steps early in the run

 private:
  // What a rank wishes at a step's beginning; the highest wish of all ranks is done.
  enum class Wish : uint8_t { go_on = 0, stop, end_by_callback };

  Wish prepare(int64_t step);
  // Makes one step with its evaluation; false when it was the last of run.max_skipped_steps skipped
  // ones.
  bool step();
  // Keeps and shows what the model writes now.
  void sample();
  // started: a thread writes, and the next save or the run's end waits for it.
  void save(int64_t step, bool started);
  // Waits for the save that was started, if there is one.
  void finish_save();
  // Between steps: asynchronously where the run does so.
  void try_save(int64_t step);
  void tried(const std::function<void()>& body);
  void timed_save(int64_t step, const std::function<void()>& body);
  // tokens: of the step, without padding.
  void observe(const StepResult& result, double heldout, double tokens, double seconds);
  // Gives all ranks the rate that a callback of rank 0 has set.
  void take_rate();
  // What the queues did since the last call, with a span for the step itself.
  void keep_spans(int64_t step, int64_t begin, int64_t end);
  // Tokens of a micro-batch of this step: those that a curriculum leaves, where rows can be
  // shorter.
  int64_t tokens_of(int64_t step) const;
  // The first `micros` micro-batches of `tokens` tokens each.
  std::vector<InputView> views(int64_t micros, int64_t tokens);
  // `count` tokens of the batch from `at` on, with what else the model asks for.
  BatchRows rows(size_t at, size_t count);

  Engine& engine_;
  ModelInputs& inputs_;
  RunData& data_;
  const RunFolder& folder_;
  const TrainOptions& options_;
  const std::string loaded_;  // the checkpoint that the run goes on from
  int64_t saves_ = 0;
  RunLog* log_;
  const Config& config_;
  const int64_t batch_tokens_;  // of one micro-batch
  std::vector<int32_t> tokens_, targets_, begins_,
      counted_;  // BatchRows; the last two may be empty
  std::vector<Trace::Span> spans_;
  int64_t first_ = 0;  // step the run begins at
  int64_t saved_ = -1;
  int64_t started_ = -1;     // step whose save goes on; -1: none
  double save_seconds_ = 0;  // since the last row
  int64_t skips_ = 0;        // steps skipped in a row
  bool callback_ended_ = false;
  bool asks_rate_ = false;          // rank 0 has a callback, as all know
  std::optional<double> set_rate_;  // by the callback, behind this step
  RunReport report_;
  std::optional<FlightFolder>
      flight_;  // from the first step on: a run that makes none leaves nothing
};

}  // namespace ds
