#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "compile/memory_plan.h"
#include "core/device/stream.h"
#include "core/graph/graph.h"
#include "engine/checkpoints.h"
#include "engine/decoding.h"
#include "engine/module_monitor.h"
#include "engine/observer.h"
#include "engine/runtime.h"
#include "engine/state_store.h"
#include "engine/step_control.h"
#include "engine/trained_set.h"
#include "exec/executor.h"
#include "optim/optimizer.h"

namespace ds {

// Data of one graph input of this rank, in memory of the host or of the engine's device: for a
// step, accumulation micro-steps one after the other.
struct InputView {
  const void* data = nullptr;
  DType dtype = DS_DTYPE_NONE;
  int64_t numel = 0;
};

// The loss of one evaluated batch and, with loss_average "tokens", the number of its targets.
struct EvalLeaf {
  float loss = 0, weight = 1;
};

// Native mode: libds owns forward and backward.
class Engine final : private StateStore::Owner {
 public:
  // Collective: compares plan hashes over all ranks before any memory is taken. comm is borrowed.
  Engine(Config config, const Graph& forward, Communicator& comm, EngineOptions options);

  // With a stream, inputs are read in its order; without one, here and now.
  //
  // Collective. inputs follow Graph::inputs; every input has the same number of rows n per
  // micro-step. A step with NaN or infinity in its loss or gradients is skipped and says so:
  // nothing but the counter of iterations has changed then. observer: sees each instruction of the
  // step by itself, on every rank or on none.
  StepResult train_batch(std::span<const InputView> inputs, StepObserver* observer = nullptr,
                         const StreamRef& stream = nullptr);
  // For a rank that has no data left: takes part in the steps of the others, without leaves of its
  // own, until all ranks have joined. Means are of the leaves that there are. Returns the steps
  // taken. A step of which nothing counts is skipped and says so. A rank without data has the
  // numbers that the others have set.
  int64_t join();
  // The same in pieces, in this order: (forward, backward) x accumulation, step. forward returns
  // this rank's loss.
  double forward(std::span<const InputView> micro_inputs, const StreamRef& stream = nullptr);
  void backward();
  StepResult step();
  // Collective: mean over ranks of the loss of one batch a rank, without dropout, by tokens
  // weighted by their targets and 0 where none has any; refused between forward and step.
  double eval_batch(std::span<const InputView> inputs, const StreamRef& stream = nullptr);
  // Returns the loss of this rank's batch alone, which the other ranks are not told. They make the
  // call, too.
  EvalLeaf eval_alone(std::span<const InputView> inputs, const StreamRef& stream = nullptr);
  // Collective: output 1 of the graph as f32, row-major.
  std::vector<float> infer(std::span<const InputView> inputs, const StreamRef& stream = nullptr);

  // Of an engine that continues text: options.programs.decode. DS_ERROR_STATE for another.
  Decoding& text();

  const Plan& plan() const { return plan_; }
  Runtime& runtime() { return runtime_; }
  const Runtime& runtime() const { return runtime_; }
  const StepControl& control() const { return control_; }
  // StepControl::set, on all ranks alike.
  void set(std::string_view name, double value) {
    runtime_.guarded([] {});  // a poisoned engine makes no step
    control_.set(name, value);
  }
  // StepControl::scale_rates, on all ranks alike.
  void scale_rates(double factor) { control_.scale_rates(factor); }
  StateStore& store() { return store_; }
  const StateStore& store() const { return store_; }
  Checkpoints& checkpoints() { return checkpoints_; }
  TrainedSet& trained() { return trained_; }
  // Of the step that runs, or has run last.
  const Program& program() const { return step_of(plan_, form_); }
  // Of the step that comes next.
  const Program& next_program() const { return step_of(plan_, next_form()); }
  // Whether memory_budget.host has room on every rank for the copy that an asynchronous save makes.
  // Known for run.async_save, with which the copy is a part of the overhead row.
  bool copy_fits() const { return copy_fits_; }
  // The programs of a step as compiled, and bytes per tier.
  std::string print_plan() const { return print_steps(plan_); }
  std::vector<TierMemory> memory() const;

 private:
  enum class Reached { idle, forward_done, backward_done };

  // StateStore::Owner
  Gradients gradients() const override;
  void require_idle(const char* call) override;
  Executor& refresh() override { return *refresh_; }
  bool own_gradients() const override {
    return form_ != StepForm::reduced || plan_.zero.compression.on();
  }
  std::string model_text() const override { return plan_.graph.print() + plan_.eval_graph.print(); }

  // What runs the program().
  Executor& stepper() { return form_ == StepForm::reduced ? *step_ : *other_forms_.at(form_); }

  StepForm next_form() const;
  void recompile(const TrainedParams& trained);
  void begin_step(bool absent = false);  // this rank has no data
  void share_numbers(bool absent);
  void compare_numbers();
  const StepResult& finish_step();
  // What `program` does not read need not be there.
  int64_t check_inputs(const Program& program, std::span<const InputView> inputs, int64_t micros,
                       const StreamRef& stream) const;
  void check_ids(size_t input, const InputView& view, int64_t micros) const;
  void put_inputs(std::span<const InputView> inputs, int64_t micro, int64_t micros, int64_t n,
                  const StreamRef& stream);
  std::string bad_tensor();

  void make_all_executors();
  void make_states();  // as the graph initializes them, and parameters
  void count_copy();
  void tell_modules(int64_t n);
  int64_t rows_ = 0;  // of the micro-steps of this step

  bool takes_spans_ = false;  // the trace is the engine's own, for modules_
  Graph forward_;
  Plan plan_;
  Runtime runtime_;
  StepControl control_;
  StateStore store_;
  TrainedSet trained_;
  Checkpoints checkpoints_;
  std::unique_ptr<Executor> refresh_, step_, eval_, infer_;
  std::map<StepForm, std::unique_ptr<Executor>> other_forms_;
  std::unique_ptr<Decoding> decoding_;
  StepForm form_ = StepForm::reduced;  // of the step that runs, or has run last
  bool momentum_in_parts_ =
      false;  // steps have updated this rank's part only: it is whole behind `refresh`
  Reached reached_ = Reached::idle;
  int64_t micro_ = 0;
  bool copy_fits_ = false;
  bool uneven_ = false;  // a rank had no data in the step before
  std::optional<ModuleMonitor> modules_;
};

}  // namespace ds
