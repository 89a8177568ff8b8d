#include "engine/engine.h"

#include <algorithm>
#include <cstring>

#include "checkpoint/agree.h"
#include "core/base/error.h"
#include "core/base/half.h"
#include "core/graph/ops.h"

namespace ds {

Engine::Engine(Config config, const Graph& forward, Communicator& comm, EngineOptions options)
    : EngineCore(std::move(config), comm, std::move(options)) {
  agree(comm_, "compile", [&] {
    overhead_.measure("programs", [&] {
      forward_ = forward;
      plan_ = compile_plan(forward_, config_, comm_.rank(), comm_.size(), options_.machine, true,
                           options_.programs);
    });
  });
  if (options_.program_filter) options_.program_filter(plan_.step);
  add_params(plan_.graph);
  start(memory_plan(plan_));
  std::unique_ptr<Executor> init;
  make_all_executors();
  make_executors([&] { init = executor(plan_.init); });
  guarded([&] { init->run(); });
  running_.pop_back();  // init, which ends here
}

void Engine::make_all_executors() {
  make_executors([&] {
    refresh_ = executor(plan_.refresh);
    step_ = executor(plan_.step);
    eval_ = executor(plan_.eval);
    if (plan_.logits.exists()) infer_ = executor(plan_.infer);
    if (plan_.decode) decoding_ = make_decoding(*plan_.decode);
  });
}

void Engine::recompile(const IdVector<ParamId, char>& frozen, const IdVector<ParamId, int64_t>& missed) {
  Plan next;
  agree(comm_, "compile", [&] {
    overhead_.measure("programs", [&] {
      next = recompile_plan(plan_, forward_, config_, options_.machine, frozen, missed);
    });
  });
  guarded([&] {
    end_executors([&] {
      decoding_.reset();
      for (std::unique_ptr<Executor>* e : {&refresh_, &step_, &eval_, &infer_}) e->reset();
    });
    overhead_.measure("programs", [&] { plan_ = std::exchange(next, {}); });
    grow(memory_plan(plan_));
    make_all_executors();
  });
}

void Engine::require_idle(const char* call) {
  if (reached_ == Reached::idle && micro_ == 0) return;
  raise(DS_ERROR_STATE, "{} must not be called between ds_forward and ds_step: {} of {} micro-steps are done",
        call, micro_, config_.accumulation);
}

InstrId Engine::segment_end(Phase phase, int64_t micro) const {
  for (const Segment& s : plan_.step.segments) {
    if (s.phase == phase && s.micro == micro) return s.end;
  }
  raise(DS_ERROR_INTERNAL, "program step has no segment '{}'",
        Segment{phase, static_cast<int32_t>(micro)}.name());
}

StepResult Engine::train_batch(std::span<const InputView> inputs, StepObserver* observer) {
  require_idle("ds_train_batch");
  int64_t n = check_inputs(inputs, config_.accumulation);
  begin_step();
  guarded([&] {
    for (int32_t m = 0; m < config_.accumulation; ++m) step_->set_extent(m, n);
    put_inputs(inputs, 0, config_.accumulation, n);
    if (observer) return run_observed(*observer, n);
    step_->run();
  });
  if (skipped()) name_bad_tensor();
  return finish_step();
}

void Engine::run_observed(StepObserver& observer, int64_t n) {
  StepSight sight{plan_.step, plan_.zero, own_memory().memory(), n, scalars_, loss_, leaves_, comm_};
  for (InstrId i : plan_.step.instrs.ids()) {
    observer.before(sight, i);
    step_->run_to(i + 1);
    step_->settle();
    observer.after(sight, i);
  }
}

int64_t Engine::join() {
  require_idle("ds_engine_join");
  struct Absence {
    StepScalars& scalars;
    explicit Absence(StepScalars& s) : scalars(s) { scalars.absent = 1; }
    ~Absence() { scalars.absent = 0; }
  } absence(scalars_);
  for (int64_t steps = 0;; ++steps) {
    begin_step();
    guarded([&] {
      for (int32_t m = 0; m < config_.accumulation; ++m) step_->set_extent(m, 1);
      step_->run();
    });
    if (leaves_ == 0) return steps;
    if (skipped()) name_bad_tensor();
    finish_step();
  }
}

double Engine::forward(std::span<const InputView> inputs) {
  if (reached_ == Reached::forward_done || micro_ >= config_.accumulation) {
    raise(DS_ERROR_STATE, "ds_forward must follow {}, {} of {} micro-steps are done",
          reached_ == Reached::forward_done ? "ds_backward" : "ds_step", micro_, config_.accumulation);
  }
  int64_t n = check_inputs(inputs, 1);
  if (micro_ == 0) begin_step();
  guarded([&] {
    step_->set_extent(static_cast<int32_t>(micro_), n);
    put_inputs(inputs, micro_, 1, n);
    step_->run_to(segment_end(Phase::forward, micro_));
  });
  reached_ = Reached::forward_done;
  float loss = 0;
  std::memcpy(&loss, address(plan_.zero.loss) + micro_ * int64_t{sizeof loss}, sizeof loss);
  return loss;
}

void Engine::backward() {
  if (reached_ != Reached::forward_done)
    raise(DS_ERROR_STATE, "ds_backward must follow ds_forward, got it without one");
  bool last = micro_ + 1 == config_.accumulation;
  guarded([&] { step_->run_to(last ? segment_end(Phase::losses) : segment_end(Phase::backward, micro_)); });
  reached_ = Reached::backward_done;
  ++micro_;
}

StepResult Engine::step() {
  if (reached_ != Reached::backward_done || micro_ != config_.accumulation) {
    raise(DS_ERROR_STATE, "ds_step must follow {} micro-steps, {} are done", config_.accumulation, micro_);
  }
  guarded([&] { step_->run(); });
  reached_ = Reached::idle;
  micro_ = 0;
  if (skipped()) name_bad_tensor();
  return finish_step();
}

// Of a skipped step. Unless a gradient was overwritten, its micro-steps are run again with every result
// checked, up to the update: nothing persistent changes but the accumulators.
void Engine::name_bad_tensor() {
  double loss = loss_, norm = scalars_.grad_norm;
  std::string bad;
  guarded([&] {
    if (agree_max(comm_, bad_edits_.empty() ? 0 : 1, "edited gradients") != 0) {
      if (!bad_edits_.empty()) bad = fmt::format("the gradient written to '{}'", *bad_edits_.begin());
      return;
    }
    step_->check_results(true);
    step_->run_to(segment_end(Phase::backward_last, config_.accumulation - 1));
    step_->abandon();
    bad = step_->first_bad();
    step_->check_results(false);
  });
  raise(DS_ERROR_NUMERIC,
        "step {} is skipped: loss {}, gradient norm {}; first tensor with NaN or infinity: {}",
        scalars_.step + 1, loss, norm, bad.empty() ? "none on this rank" : bad);
}

double Engine::eval_batch(std::span<const InputView> inputs) {
  require_idle("ds_eval_batch");
  require_refreshed();
  int64_t n = check_inputs(inputs, 1);
  scalars_.train = 0;
  float loss = 0;
  std::vector<float> all(static_cast<size_t>(comm_.size()));
  guarded([&] {
    eval_->set_extent(0, n);
    put_inputs(inputs, 0, 1, n);
    eval_->run();
    std::memcpy(&loss, address(plan_.eval_loss), sizeof loss);
    comm_.all_gather(&loss, all.data(), sizeof loss, "eval loss");
  });
  double sum = 0;
  for (float l : all) sum += l;
  return sum / comm_.size();
}

std::vector<float> Engine::infer(std::span<const InputView> inputs) {
  require_idle("ds_infer");
  require_refreshed();
  if (!infer_)
    raise(DS_ERROR_STATE, "ds_infer needs a graph with a second output, got {} outputs{}",
          plan_.graph.outputs.size(), options_.programs.infer ? "" : " and an engine made without it");
  int64_t n = check_inputs(inputs, 1);
  scalars_.train = 0;
  guarded([&] {
    infer_->set_extent(0, n);
    put_inputs(inputs, 0, 1, n);
    infer_->run();
  });
  const TensorType& type = plan_.graph.type(plan_.graph.outputs[1]);
  std::vector<float> out(static_cast<size_t>(type.shape.numel(n)));
  widen(type.dtype, address(plan_.logits), static_cast<int64_t>(out.size()), out.data());
  return out;
}

int64_t Engine::check_inputs(std::span<const InputView> inputs, int64_t micros) const {
  const Graph& g = plan_.graph;
  require(inputs.size() == g.inputs.size(), "the graph has {} inputs, got {}", g.inputs.size(),
          inputs.size());
  int64_t n = -1;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Value& value = g.values[g.inputs[i]];
    require(inputs[i].dtype == value.type.dtype, "input '{}' must be {}, got {}", value.name,
            dtype_name(value.type.dtype), dtype_name(inputs[i].dtype));
    int64_t row = value.type.shape.numel(1) * micros;
    require(inputs[i].numel > 0 && inputs[i].numel % row == 0,
            "input '{}' must have a multiple of {} elements, got {}", value.name, row, inputs[i].numel);
    int64_t mine = value.type.shape.symbolic() ? inputs[i].numel / row : n;
    require(n < 0 || mine == n, "input '{}' has {} rows, the inputs before it have {}", value.name, mine, n);
    n = mine;
    require(n <= g.bound, "input '{}' has {} rows, the declared bound is {}", value.name, n, g.bound);
    check_ids(i, inputs[i]);
  }
  return std::max<int64_t>(n, 1);
}

// Ids are checked against the table or logits that they select from.
void Engine::check_ids(size_t input, const InputView& view) const {
  if (view.dtype != DS_DTYPE_I32) return;
  const Graph& g = plan_.graph;
  ValueId value = g.inputs[input];
  int64_t limit = INT32_MAX;
  bool targets = false;
  for (const Node& node : g.nodes) {
    const std::optional<IdOperand>& ids = op(node.op).ids;
    if (!ids || node.in[ids->ids] != value) continue;
    limit = std::min(limit, g.type(node.in[ids->from]).shape[ids->dim].extent);
    targets = targets || ids->targets;
  }
  const auto* ids = static_cast<const int32_t*>(view.data);
  for (int64_t i = 0; i < view.numel; ++i) {
    bool ok = (ids[i] >= 0 && ids[i] < limit) || (targets && ids[i] == -100);
    require(ok, "input '{}' must have ids from 0 to {}, got {} at {}", g.values[value].name, limit - 1,
            ids[i], i);
  }
}

void Engine::put_inputs(std::span<const InputView> inputs, int64_t micro, int64_t micros, int64_t n) {
  for (size_t i = 0; i < inputs.size(); ++i) {
    const TensorType& type = plan_.graph.type(plan_.graph.inputs[i]);
    int64_t unit = size_of(type.dtype);
    int64_t bytes = type.shape.numel(n) * unit, slot = type.shape.numel(plan_.graph.bound) * unit;
    const auto* from = static_cast<const std::byte*>(inputs[i].data);
    std::byte* to = address(plan_.zero.inputs[i]);
    for (int64_t m = 0; m < micros; ++m) {
      std::memcpy(to + (micro + m) * slot, from + m * bytes, static_cast<size_t>(bytes));
    }
  }
}

}  // namespace ds
