#pragma once
#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "comm/communicator.h"
#include "compile/plan.h"
#include "core/device/stream.h"
#include "core/graph/graph.h"
#include "core/program/program.h"
#include "engine/body.h"
#include "engine/module_monitor.h"
#include "engine/observer.h"
#include "engine/options.h"
#include "engine/step_control.h"
#include "exec/executor.h"
#include "optim/optimizer.h"
#include "zero/zero_plan.h"

namespace ds {

// This rank's data for one graph input, in host memory or in memory of the engine's device. For a
// step, it contains all micro-steps, one after the other.
struct InputView {
  const void* data = nullptr;
  DType dtype = DS_DTYPE_NONE;
  int64_t numel = 0;
};

// Means over the pairs of a micro-batch: the rewards of the chosen and of the rejected texts, the
// share of pairs whose chosen text has the larger one, and the difference of both.
using PairRewards = std::array<float, 4>;

// The loss of one evaluated batch and its weight: 1 or, with loss_average "tokens", the number of
// its targets.
struct EvalLeaf {
  float loss = 0, weight = 1;
  // The number of the adapter that was chosen.
  int32_t adapter = 0;
  PairRewards rewards = {};
};

// Output 1 of a graph as f32, row-major.
struct Inferred {
  std::vector<int64_t> dims;
  std::vector<float> values;
};

// Native mode: libds owns forward and backward.
class Engine final : public EngineBody {
 public:
  // Collective: compares plan hashes over all ranks before any memory is allocated. `comm` is
  // borrowed.
  Engine(const Config& config, const Graph& forward, Communicator& comm,
         const EngineOptions& options);

  // Runs one training step; collective. `inputs` follow Graph::inputs, and every input has the same
  // number of rows n per micro-step. With a stream, the inputs are read in the stream's order;
  // without one, before the call returns. A step with NaN or infinity in its loss or gradients is
  // skipped: the result says so, and only the counter of steps and the loss scale change. If an
  // observer is given, it sees each instruction of the step by itself; pass an observer on every
  // rank or on none.
  StepResult train_batch(std::span<const InputView> inputs, StepObserver* observer = nullptr,
                         const StreamRef& stream = nullptr);
  // A rank that has no data left calls this to take part in the steps of the other ranks, without
  // contributing leaves, until all ranks have joined. Means are over the leaves of the other ranks.
  // If these have no weight, the step is skipped and its result says so. Uses the numbers
  // (StepControl::set) of the ranks that have data. Returns the number of steps that it took part
  // in.
  int64_t join();
  // Run a step in pieces. The order of calls is (forward, backward) x accumulation, step.
  // forward returns this rank's loss.
  double forward(std::span<const InputView> micro_inputs, const StreamRef& stream = nullptr);
  void backward();
  StepResult step();
  // Collective: returns the mean loss of one batch per rank, without dropout. With loss_average
  // "tokens" the mean is weighted by the numbers of targets; without any target it is 0. Refused
  // between forward and step.
  double eval_batch(std::span<const InputView> inputs, const StreamRef& stream = nullptr);
  // Returns the loss of only this rank's batch. All ranks make the call, but they do not exchange
  // their losses.
  EvalLeaf eval_alone(std::span<const InputView> inputs, const StreamRef& stream = nullptr);
  // Returns the rewards of each micro-step of the last step on this rank, or nothing if the loss
  // does not compare pairs.
  std::vector<PairRewards> rewards();
  // Collective: returns output 1 of the graph, or the losses of single targets (InferKeys).
  Inferred infer(std::span<const InputView> inputs, const StreamRef& stream = nullptr);

  // "adapter.NAME" with 1 chooses the adapter with which evaluation and inference run from now on:
  // one of adapter.others, "default" or "base"; NaN chooses the own one again. Any other name is
  // one of StepControl::set. All ranks must make the same call.
  void set(std::string_view name, double value) override;
  // Returns the number of the chosen adapter (nn/adapter_keys.h).
  int chosen_adapter() const { return adapter_; }

  // Calls StepControl::scale_rates; all ranks must make the same call.
  void scale_rates(double factor) { control_.scale_rates(factor); }
  // Returns the program of the current step or, between steps, of the last step.
  const Program& program() const { return plan_.step(form_); }
  // Returns the program of the next step.
  const Program& next_program() const { return plan_.step(next_form()); }
  // Returns whether memory_budget.host has room on every rank for the copy that an asynchronous
  // save makes. Only computed with run.async_save, which adds the copy to the overhead row.
  bool copy_fits() const { return copy_fits_; }

 private:
  enum class Reached { idle, forward_done, backward_done };

  // StateStore::Owner
  Gradients gradients() const override;
  void require_idle(const char* call) override;
  bool own_gradients() const override {
    return form_ != StepForm::reduced || plan_.zero.compression.on();
  }
  std::string model_text() const override { return plan_.graph.print() + plan_.eval_graph.print(); }

  // Returns the executor of program().
  Executor& stepper() { return executor(form_); }

  StepForm next_form() const;
  void recompile(const TrainedParams& trained) override;
  void plan_replaced() override;
  // Begins a step. `absent` says that this rank has no data.
  void begin_step(bool absent = false);
  void share_numbers(bool absent);
  void compare_numbers();
  const StepResult& finish_step();
  // Checks the inputs and returns n. An input that `program` does not read may be missing.
  int64_t check_inputs(const Program& program, std::span<const InputView> inputs, int64_t micros,
                       const StreamRef& stream) const;
  void check_ids(size_t input, const InputView& view, int64_t micros) const;
  void put_inputs(std::span<const InputView> inputs, int64_t micro, int64_t micros, int64_t n,
                  const StreamRef& stream);
  std::string bad_tensor();

  void count_copy();
  void tell_modules(int64_t n);
  // The number of rows in each micro-step of the current step.
  int64_t rows_ = 0;

  // The number of the adapter that evaluation and inference run with.
  int adapter_ = 0;
  Graph forward_;
  // The form of the current step or, between steps, of the last step.
  StepForm form_ = StepForm::reduced;
  // Whether steps have updated only this rank's part of the momentum; `refresh` then gathers all
  // parts.
  bool momentum_in_parts_ = false;
  Reached reached_ = Reached::idle;
  int64_t micro_ = 0;
  bool copy_fits_ = false;
  // Whether a rank had no data in the previous step.
  bool uneven_ = false;
  std::optional<ModuleMonitor> modules_;
};

}  // namespace ds
