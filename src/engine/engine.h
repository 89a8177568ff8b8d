#pragma once
#include "core/graph/graph.h"
#include "engine/core.h"
#include "engine/observer.h"

namespace ds {

// Data of one graph input of this rank: for a step, accumulation micro-steps one after the other.
struct InputView {
  const void* data = nullptr;
  DType dtype = DS_DTYPE_NONE;
  int64_t numel = 0;
};

// Native mode: libds owns forward and backward.
class Engine final : public EngineCore {
 public:
  // Collective: compares plan hashes over all ranks before any memory is taken. comm is borrowed.
  Engine(Config config, const Graph& forward, Communicator& comm, EngineOptions options);

  // Collective. inputs follow Graph::inputs; every input has the same number of rows n per micro-step.
  // observer: sees each instruction of the step by itself, on every rank or on none.
  StepResult train_batch(std::span<const InputView> inputs, StepObserver* observer = nullptr);
  // For a rank that has no data left: takes part in the steps of the others, without leaves of its own, until
  // all ranks have joined. Means are of the leaves that there are. Returns the steps taken.
  int64_t join();
  // The same in pieces, in this order: (forward, backward) x accumulation, step. forward returns this rank's
  // loss.
  double forward(std::span<const InputView> micro_inputs);
  void backward();
  StepResult step();
  // Collective: mean over ranks of the loss of one batch a rank, without dropout; refused between forward and
  // step.
  double eval_batch(std::span<const InputView> inputs);
  // Collective: output 1 of the graph as f32, row-major.
  std::vector<float> infer(std::span<const InputView> inputs);

  const Plan& plan() const { return plan_; }
  std::string print_plan() const override { return plan_.step.print(); }
  std::string report_plan() const override {
    return memory_table(plan_.zero.buffers, memory_plan(plan_), config_.memory_budget) + overhead().table();
  }

 protected:
  const ZeroPlan& zero() const override { return plan_.zero; }
  const Program& placed() const override { return plan_.step; }
  const std::string& plan_hash() const override { return plan_.hash; }
  std::string model_text() const override { return plan_.graph.print() + plan_.eval_graph.print(); }
  Executor& refresh() override { return *refresh_; }
  Decoding* decoding() override { return decoding_.get(); }
  bool in_accumulation() const override { return micro_ > 0 && micro_ < config_.accumulation; }
  bool before_update() const override { return micro_ == config_.accumulation; }
  void require_idle(const char* call) override;

  void recompile(const IdVector<ParamId, char>& frozen, const IdVector<ParamId, int64_t>& missed) override;

 private:
  enum class Reached { idle, forward_done, backward_done };

  int64_t check_inputs(std::span<const InputView> inputs, int64_t micros) const;
  void check_ids(size_t input, const InputView& view) const;
  void put_inputs(std::span<const InputView> inputs, int64_t micro, int64_t micros, int64_t n);
  void run_observed(StepObserver& observer, int64_t n);
  void name_bad_tensor();
  InstrId segment_end(Phase phase, int64_t micro = -1) const;

  void make_all_executors();

  Graph forward_;
  Plan plan_;
  std::unique_ptr<Executor> refresh_, step_, eval_, infer_;
  std::unique_ptr<Decoding> decoding_;
  Reached reached_ = Reached::idle;
  int64_t micro_ = 0;
};

}  // namespace ds
