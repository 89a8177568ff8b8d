#include "engine/engine.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "checkpoint/agree.h"
#include "core/base/error.h"
#include "core/base/json.h"
#include "core/config/param_groups.h"
#include "core/graph/ops.h"
#include "exec/executor.h"
#include "optim/optimizer.h"

namespace ds {
namespace {

bool reads(const Program& program, BufferId buffer) {
  auto of_it = [&](const Operand& o) { return o.buffer == buffer; };
  return std::any_of(program.instrs.begin(), program.instrs.end(), [&](const Instr& in) {
    return std::any_of(in.operands.begin(), in.operands.end(), of_it);
  });
}

// `begins` of so many micro-batches: each row is in the document of the row before, or begins one.
void check_documents(const std::string& input, std::span<const int32_t> begins, int64_t micros,
                     int64_t most) {
  auto rows = static_cast<int64_t>(begins.size()) / micros;
  for (int64_t i = 0; i < rows * micros; ++i) {
    int64_t row = i % rows, begin = begins[static_cast<size_t>(i)];
    bool goes_on = row > 0 && begin == begins[static_cast<size_t>(i - 1)];
    if (begin != row && !goes_on) {
      raise(DS_ERROR_INVALID_ARGUMENT,
            "input '{}' must have {} at row {}, or what the row before has, got {}: the first row "
            "of the "
            "document that the row is in",
            input, row, row, begin);
    }
    require(row - begin < most, "input '{}' has a document of more than {} rows, from row {} on",
            input, most, begin);
  }
}

// Reports by module need a trace; true: only they do.
bool trace_modules(const Config& config, EngineOptions& options) {
  const bool own = ModuleMonitor::wanted(config) && !options.trace;
  options.trace = options.trace || own;
  return own;
}

}  // namespace

Engine::Engine(Config config, const Graph& forward, Communicator& comm, EngineOptions options)
    : takes_spans_(trace_modules(config, options)),
      runtime_(std::move(config), comm, std::move(options), {plan_.zero, plan_.step, plan_.hash}),
      control_(runtime_.config(), runtime_.mesh().data_size()),
      store_(runtime_, control_, *this, plan_.zero, StateStore::Keeps::training),
      trained_(runtime_, control_, store_, [this](const auto& trained) { recompile(trained); }),
      checkpoints_(runtime_, control_, store_, &trained_, [this] { make_states(); }) {
  const EngineOptions& own = runtime_.options();
  runtime_.compile([&] {
    forward_ = forward;
    plan_ = compile_plan(forward_, runtime_.config(), comm.rank(), runtime_.mesh(), own.machine,
                         true, own.programs);
  });
  if (own.program_filter) own.program_filter(plan_.step);
  store_.add_params(plan_.graph);
  runtime_.start(memory_plan(plan_));
  make_all_executors();
  make_states();
  store_.take_initial_values();
  if (runtime_.config().run.async_save) count_copy();
  if (ModuleMonitor::wanted(runtime_.config())) {
    modules_.emplace(runtime_.config(), comm.rank(), comm.size(), *runtime_.trace(), takes_spans_,
                     own.module_report);
  }
}

void Engine::make_states() {
  std::unique_ptr<Executor> init;
  runtime_.make_executors([&] { init = runtime_.executor(plan_.init, control_); });
  runtime_.guarded([&] { init->run(); });
  runtime_.forget_last_executor();
}

// The copy of a save that goes on beside the steps lies in host memory, beside what is planned
// there.
void Engine::count_copy() {
  const int64_t limit = runtime_.config().memory_budget.host, copy = store_.copy_bytes();
  const bool fits = limit < 0 || memory_plan(plan_).total(Tier::host) <= limit - copy;
  copy_fits_ = agree_max(runtime_.comm(), fits ? 0 : 1, "checkpoint copy") == 0;
  if (copy_fits_) runtime_.add_overhead("checkpoint copy", copy);
}

void Engine::make_all_executors() {
  runtime_.make_executors([&] {
    refresh_ = runtime_.executor(plan_.refresh, control_);
    step_ = runtime_.executor(plan_.step, control_);
    for (const auto& [form, program] : plan_.other_forms)
      other_forms_[form] = runtime_.executor(program, control_);
    eval_ = runtime_.executor(plan_.eval, control_);
    if (plan_.logits.exists()) infer_ = runtime_.executor(plan_.infer, control_);
    if (plan_.decode)
      decoding_ = std::make_unique<Decoding>(*plan_.decode, runtime_, control_, store_);
  });
}

void Engine::recompile(const TrainedParams& trained) {
  Plan next;
  runtime_.compile([&] {
    next = recompile_plan(plan_, forward_, runtime_.config(), runtime_.options().machine, trained);
  });
  runtime_.guarded([&] {
    runtime_.end_executors([&] {
      decoding_.reset();
      other_forms_.clear();
      for (std::unique_ptr<Executor>* e : {&refresh_, &step_, &eval_, &infer_}) e->reset();
    });
    runtime_.replace_programs([&] { plan_ = std::exchange(next, {}); });
    runtime_.grow(memory_plan(plan_));
    make_all_executors();
    if (modules_) modules_->forget();
  });
}

std::vector<TierMemory> Engine::memory() const {
  return memory_by_tier(plan_.zero.buffers, memory_plan(plan_), runtime_.config().memory_budget);
}

Decoding& Engine::text() {
  if (!decoding_)
    raise(DS_ERROR_STATE, "decode needs an engine made for it: positions must be > 0, got 0");
  return *decoding_;
}

StateStore::Owner::Gradients Engine::gradients() const {
  if (micro_ == 0) return Gradients::none;
  return micro_ < runtime_.config().accumulation ? Gradients::some : Gradients::all;
}

void Engine::require_idle(const char* call) {
  if (reached_ == Reached::idle && micro_ == 0) return;
  raise(DS_ERROR_STATE,
        "{} must not be called between ds_forward and ds_step: {} of {} micro-steps are done", call,
        micro_, runtime_.config().accumulation);
}

StepForm Engine::next_form() const {
  const OptimizerConfig& config = runtime_.config().optimizer;
  return optimizer_of(config).form(config, control_.updates());
}

// A rank without data is in join(), where it cannot set numbers: it takes those of the first rank
// that has some. A step tells whether a rank had none, so ranks know it from the second such step
// on, and compare_numbers() looks at the first. Collective where a rank had none.
void Engine::share_numbers(bool absent) {
  if (!uneven_) return;
  Json::Array mine;
  for (const SetNumbers& numbers : control_.set_numbers())
    mine.emplace_back(Json::Object(numbers.begin(), numbers.end()));
  std::vector<std::string> all;
  runtime_.guarded([&] {
    all = gather_texts(runtime_.data_ranks(), absent ? "" : Json(mine).dump(), "numbers of a step");
  });
  const auto has = [](const std::string& text) { return !text.empty(); };
  const auto first = std::find_if(all.begin(), all.end(), has);
  if (first == all.end()) return;
  for (auto it = first; it != all.end(); ++it) {
    if (it->empty() || *it == *first) continue;
    raise(DS_ERROR_INVALID_ARGUMENT,
          "ds_engine_set: the numbers of groups are {} on rank {}, {} on {}", *first,
          first - all.begin(), *it, RankNumber(static_cast<size_t>(it - all.begin())));
  }
  if (!absent) return;
  const Json given = Json::parse(*first);
  std::vector<SetNumbers> numbers;
  for (const Json& group : given.array()) {
    SetNumbers& of = numbers.emplace_back();
    for (const auto& [name, value] : group.object()) of[name] = value.number();
  }
  control_.take_set(numbers);
}

// Of a step in which a rank had no data, whose numbers are those that it had before: parameters
// that ranks update with different ones are none that anybody wants. Collective.
void Engine::compare_numbers() {
  std::string mine;
  for (size_t g = 0; g < control_.groups().size(); ++g) {
    for (const GroupNumber& number : group_numbers(runtime_.config().optimizer))
      mine += fmt::format("{}param_groups[{}].{} {}", mine.empty() ? "" : ", ", g, number.name,
                          control_.groups()[g].*number.value);
  }
  runtime_.guarded([&] {
    agree_equal(runtime_.data_ranks(), "ds_engine_join: what a step updates with", mine);
  });
}

void Engine::begin_step(bool absent) {
  store_.require_refreshed();
  share_numbers(absent);
  store_.changed();
  control_.begin_step();
  form_ = next_form();
  if (!optimizer_of(runtime_.config().optimizer).whole_momentum()) return;
  if (form_ != StepForm::reduced && momentum_in_parts_)
    runtime_.guarded([&] { store_.renew_params(); });
  momentum_in_parts_ = form_ == StepForm::reduced;
}

const StepResult& Engine::finish_step() {
  uneven_ = control_.leaves() < runtime_.config().accumulation * runtime_.mesh().data_size();
  if (uneven_) compare_numbers();
  if (!control_.skips()) return control_.finish();
  if (control_.weight() == 0)
    return control_.finish(fmt::format("step {} is skipped: none of its micro-batches has a target",
                                       control_.steps() + 1));
  std::string tensor = bad_tensor();
  const double loss = control_.loss();  // a NaN has no sign to show
  return control_.finish(fmt::format(
      "step {} is skipped: loss {}, gradient norm {}; first tensor with NaN or infinity: {}",
      control_.steps() + 1, std::isnan(loss) ? std::abs(loss) : loss,
      std::abs(control_.scalars().grad_norm), tensor));
}

StepResult Engine::train_batch(std::span<const InputView> inputs, StepObserver* observer,
                               const StreamRef& stream) {
  require_idle("ds_train_batch");
  int64_t n = check_inputs(plan_.step, inputs, runtime_.config().accumulation, stream);
  begin_step();
  if (modules_) modules_->begin();
  runtime_.guarded([&] {
    for (int64_t m = 0; m < runtime_.config().accumulation; ++m)
      stepper().set_extent(MicroId(m), n);
    put_inputs(inputs, 0, runtime_.config().accumulation, n, stream);
    if (!observer) return stepper().run();
    run_observed(stepper(), program().end(), {program(), plan_.zero, runtime_, n, control_},
                 *observer);
  });
  if (!observer) tell_modules(n);
  return finish_step();
}

int64_t Engine::join() {
  require_idle("ds_engine_join");
  struct Absence {
    StepControl& control;
    explicit Absence(StepControl& c) : control(c) { control.set_absent(true); }
    ~Absence() { control.set_absent(false); }
  };
  for (int64_t steps = 0;; ++steps) {
    begin_step(true);  // which may run a program that this rank is a part of
    const Absence absence(control_);
    runtime_.guarded([&] {
      for (int64_t m = 0; m < runtime_.config().accumulation; ++m)
        stepper().set_extent(MicroId(m), 1);
      stepper().run();
    });
    if (control_.leaves() == 0) {
      uneven_ = false;
      return steps;
    }
    finish_step();
  }
}

double Engine::forward(std::span<const InputView> inputs, const StreamRef& stream) {
  if (reached_ == Reached::forward_done || micro_ >= runtime_.config().accumulation) {
    raise(DS_ERROR_STATE, "ds_forward must follow {}, {} of {} micro-steps are done",
          reached_ == Reached::forward_done ? "ds_backward" : "ds_step", micro_,
          runtime_.config().accumulation);
  }
  int64_t n = check_inputs(plan_.step, inputs, 1, stream);
  if (micro_ == 0) begin_step();
  if (micro_ == 0 && modules_) modules_->begin();
  rows_ = n;
  runtime_.guarded([&] {
    stepper().set_extent(MicroId(micro_), n);
    put_inputs(inputs, micro_, 1, n, stream);
    stepper().run_to(program().end_of(Phase::forward, MicroId(micro_)));
  });
  reached_ = Reached::forward_done;
  float loss = 0;
  runtime_.read(runtime_.buffer(plan_.zero.loss), micro_ * int64_t{sizeof loss}, &loss,
                sizeof loss);
  return loss;
}

void Engine::backward() {
  if (reached_ != Reached::forward_done)
    raise(DS_ERROR_STATE, "ds_backward must follow ds_forward, got it without one");
  bool last = micro_ + 1 == runtime_.config().accumulation;
  runtime_.guarded([&] {
    stepper().run_to(last ? program().end_of(Phase::losses)
                          : program().end_of(Phase::backward, MicroId(micro_)));
  });
  reached_ = Reached::backward_done;
  ++micro_;
}

StepResult Engine::step() {
  if (reached_ != Reached::backward_done || micro_ != runtime_.config().accumulation) {
    raise(DS_ERROR_STATE, "ds_step must follow {} micro-steps, {} are done",
          runtime_.config().accumulation, micro_);
  }
  runtime_.guarded([&] { stepper().run(); });
  reached_ = Reached::idle;
  micro_ = 0;
  tell_modules(rows_);
  return finish_step();
}

void Engine::tell_modules(int64_t n) {
  if (!modules_) return;
  modules_->end(program(), control_.steps() + 1, plan_.graph, forward_, n);
}

// Names what made the step be skipped. Unless a gradient was overwritten, its micro-steps are run
// again with every result checked, up to the update: nothing persistent changes but the
// accumulators. Collective.
std::string Engine::bad_tensor() {
  std::string bad = control_.bad_gradient();
  runtime_.guarded([&] {
    if (agree_max(runtime_.comm(), bad.empty() ? 0 : 1, "edited gradients") != 0) {
      if (!bad.empty()) bad = fmt::format("the gradient written to '{}'", bad);
      return;
    }
    stepper().check_results(true);
    stepper().run_to(
        program().end_of(Phase::backward_last, MicroId(runtime_.config().accumulation - 1)));
    stepper().abandon();
    bad = stepper().first_bad();
    stepper().check_results(false);
  });
  return bad.empty() ? "none on this rank" : bad;
}

double Engine::eval_batch(std::span<const InputView> inputs, const StreamRef& stream) {
  const EvalLeaf own = eval_alone(inputs, stream);
  std::vector<EvalLeaf> all(static_cast<size_t>(runtime_.data_ranks().size()));
  runtime_.guarded(
      [&] { runtime_.data_ranks().all_gather(&own, all.data(), sizeof own, "eval loss"); });
  double sum = 0, weights = 0;
  for (const EvalLeaf& leaf : all) {
    if (leaf.weight == 0) continue;
    sum += static_cast<double>(leaf.weight) * static_cast<double>(leaf.loss);
    weights += leaf.weight;
  }
  return weights == 0 ? 0 : sum / weights;  // as a cross_entropy without targets
}

EvalLeaf Engine::eval_alone(std::span<const InputView> inputs, const StreamRef& stream) {
  require_idle("ds_eval_batch");
  store_.require_refreshed();
  int64_t n = check_inputs(plan_.eval, inputs, 1, stream);
  control_.begin_evaluation();
  EvalLeaf own;
  runtime_.guarded([&] {
    eval_->set_extent(MicroId(0), n);
    put_inputs(inputs, 0, 1, n, stream);
    eval_->run();
    runtime_.read(runtime_.buffer(plan_.eval_loss), 0, &own.loss, sizeof own.loss);
    if (plan_.eval_weight.exists())
      runtime_.read(runtime_.buffer(plan_.eval_weight), 0, &own.weight, sizeof own.weight);
  });
  return own;
}

std::vector<float> Engine::infer(std::span<const InputView> inputs, const StreamRef& stream) {
  require_idle("ds_infer");
  store_.require_refreshed();
  if (!infer_)
    raise(DS_ERROR_STATE, "ds_infer needs a graph with a second output, got {} outputs{}",
          plan_.graph.outputs.size(),
          runtime_.options().programs.infer ? "" : " and an engine made without it");
  int64_t n = check_inputs(plan_.infer, inputs, 1, stream);
  control_.begin_evaluation();
  runtime_.guarded([&] {
    infer_->set_extent(MicroId(0), n);
    put_inputs(inputs, 0, 1, n, stream);
    infer_->run();
  });
  const TensorType& type = plan_.graph.type(plan_.graph.outputs[1].value);
  std::vector<float> out(static_cast<size_t>(type.shape.numel(n)));
  runtime_.read_floats(runtime_.buffer(plan_.logits), 0, static_cast<int64_t>(out.size()),
                       out.data());
  return out;
}

int64_t Engine::check_inputs(const Program& program, std::span<const InputView> inputs,
                             int64_t micros, const StreamRef& stream) const {
  const Graph& g = plan_.graph;
  require(inputs.size() == g.inputs.size(), "the graph has {} inputs, got {}", g.inputs.size(),
          inputs.size());
  int64_t n = -1;
  bool waited = !stream;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Value& value = g.values[g.inputs[i]];
    if (!inputs[i].data) {
      require(!reads(program, plan_.zero.inputs[i]),
              "inputs[{}], '{}', must not be NULL: it is needed", i, value.name);
      continue;
    }
    // Rounded where it is copied, by the host.
    bool cast = runtime_.config().auto_cast && value.type.dtype == DS_DTYPE_F16 &&
                inputs[i].dtype == DS_DTYPE_F32 && !stream;
    require(cast || inputs[i].dtype == value.type.dtype, "input '{}' must be {}, got {}",
            value.name, dtype_name(value.type.dtype), dtype_name(inputs[i].dtype));
    int64_t row = value.type.shape.numel(1) * micros;
    require(inputs[i].numel > 0 && inputs[i].numel % row == 0,
            "input '{}' must have a multiple of {} elements, got {}", value.name, row,
            inputs[i].numel);
    int64_t mine = value.type.shape.symbolic() ? inputs[i].numel / row : n;
    require(n < 0 || mine == n, "input '{}' has {} rows, the inputs before it have {}", value.name,
            mine, n);
    n = mine;
    require(n <= g.bound, "input '{}' has {} rows, the declared bound is {}", value.name, n,
            g.bound);
    if (value.type.dtype != DS_DTYPE_I32) continue;
    if (!std::exchange(waited, true)) stream->synchronize();  // ids are looked at here and now
    check_ids(i, inputs[i], micros);
  }
  return std::max<int64_t>(n, 1);
}

// Ids are checked against the table or logits that they select from, and documents against the
// rows; what only custom operations read, or nothing, is not. -100 is a target without a loss, and
// an id of nothing else.
void Engine::check_ids(size_t input, const InputView& view, int64_t micros) const {
  const Graph& g = plan_.graph;
  ValueId value = g.inputs[input];
  int64_t limit = INT32_MAX, most = 0;  // most: rows of a document
  bool targets = false, selects = false, read = false;
  for (const Node& node : g.nodes) {
    read =
        read || (!node.custom && std::find(node.in.begin(), node.in.end(), value) != node.in.end());
    const OpDef& row = op(node.op);
    if (auto documents = row.documents ? row.documents(node.in.size(), node.attrs) : std::nullopt;
        documents && node.in[documents->operand] == value) {
      most = most == 0 ? documents->most : std::min(most, documents->most);
    }
    const std::optional<IdOperand>& ids = row.ids;
    if (!ids || node.in[ids->ids] != value) continue;
    limit = std::min(limit, g.type(node.in[ids->from]).shape[ids->dim].extent);
    (ids->targets ? targets : selects) = true;
  }
  if (!read) return;
  const auto* ids = static_cast<const int32_t*>(view.data);
  std::vector<int32_t> copy;
  if (!runtime_.shared_memory()) {
    copy.resize(static_cast<size_t>(view.numel));
    runtime_.device()->copy(copy.data(), view.data, view.numel * int64_t{sizeof(int32_t)});
    ids = copy.data();
  }
  for (int64_t i = 0; i < view.numel; ++i) {
    bool ok = (ids[i] >= 0 && ids[i] < limit) || (targets && !selects && ids[i] == -100);
    require(ok, "input '{}' must have ids from 0 to {}, got {} at {}", g.values[value].name,
            limit - 1, ids[i], i);
  }
  if (most > 0)
    check_documents(g.values[value].name, {ids, static_cast<size_t>(view.numel)}, micros, most);
}

// On the stream, when there is one: what runs behind this waits for it.
void Engine::put_inputs(std::span<const InputView> inputs, int64_t micro, int64_t micros, int64_t n,
                        const StreamRef& stream) {
  for (size_t i = 0; i < inputs.size(); ++i) {
    const TensorType& type = plan_.graph.type(plan_.graph.inputs[i]);
    int64_t unit = size_of(type.dtype);
    int64_t bytes = type.shape.numel(n) * unit, slot = type.shape.numel(plan_.graph.bound) * unit;
    const auto* from = static_cast<const std::byte*>(inputs[i].data);
    if (!from) continue;
    const Buffer& to = runtime_.buffer(plan_.zero.inputs[i]);
    for (int64_t m = 0; m < micros; ++m) {
      int64_t begin = (micro + m) * slot;
      if (inputs[i].dtype != type.dtype) {
        const int64_t count = bytes / unit;
        const auto* floats = static_cast<const float*>(inputs[i].data) + m * count;
        runtime_.write_floats(to, begin / unit, count, floats);
        continue;
      }
      if (stream) {
        stream->queue().copy(runtime_.address(to) + begin, from + m * bytes, bytes);
      } else {
        runtime_.write(to, begin, from + m * bytes, bytes);
      }
    }
  }
  runtime_.order_after(stream);
}

}  // namespace ds
