// Problem: a call of the host runs a whole step, or a piece of one, of a program that all ranks run
// together. All ranks must refuse, skip or finish the step together, and the pieces must compute
// the same bits as the whole step.
// A step is one run of one program: inputs are checked and copied to their places, the executor
// runs, and StepControl counts the step. The pieces run the same program up to the end of a
// segment; reached_ and micro_ say how far. Inputs are checked before anything has changed. After a
// skipped step the micro-steps run again with checks, in order to name the first tensor with NaN or
// infinity.
#include "engine/engine.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "checkpoint/agree.h"
#include "compile/pipeline.h"
#include "compile/plan.h"
#include "core/base/error.h"
#include "core/base/json.h"
#include "core/graph/ops.h"
#include "exec/executor.h"
#include "monitor/keys.h"
#include "nn/adapter_keys.h"
#include "optim/optimizer.h"
#include "optim/param_groups.h"

namespace ds {
namespace {

bool reads(const Program& program, BufferId buffer) {
  auto of_it = [&](const Operand& o) { return o.buffer == buffer; };
  return std::any_of(program.instrs.begin(), program.instrs.end(), [&](const Instr& in) {
    return std::any_of(in.operands.begin(), in.operands.end(), of_it);
  });
}

// Checks the documents of `micros` micro-batches: each row belongs to the document of the previous
// row or begins a new document, and a document has at most `most` rows.
void check_documents(const std::string& input, std::span<const int32_t> begins, int64_t micros,
                     int64_t most) {
  auto rows = static_cast<int64_t>(begins.size()) / micros;
  for (int64_t i = 0; i < rows * micros; ++i) {
    int64_t row = i % rows, begin = begins[static_cast<size_t>(i)];
    bool goes_on = row > 0 && begin == begins[static_cast<size_t>(i - 1)];
    if (begin != row && !goes_on) {
      raise(DS_ERROR_INVALID_ARGUMENT,
            "input '{}' must have {} or the previous row's value at row {}, got {}: each row names "
            "the first row of its document",
            input, row, row, begin);
    }
    require(row - begin < most, "input '{}' has a document of more than {} rows, from row {} on",
            input, most, begin);
  }
}

// Reports by module need a trace.
EngineOptions with_trace(const MonitorKeys& keys, EngineOptions options) {
  options.trace = options.trace || ModuleMonitor::wanted(keys);
  return options;
}

}  // namespace

Engine::Engine(const Config& config, const Graph& forward, Communicator& comm,
               const EngineOptions& options)
    : EngineBody(config, comm, with_trace(config.get<MonitorKeys>(), options),
                 StateStore::Keeps::training) {
  const EngineOptions& own = runtime_.options();
  compile([&](size_t first) {
    forward_ = forward;
    PlanPrograms programs = own.programs;
    programs.first_choice = first;
    return compile_plan(forward_, config, comm.rank(), runtime_.mesh(), machine(), true, programs);
  });
  if (own.program_filter) own.program_filter(plan_.programs.at(ProgramKind::step));
  store_.add_params(plan_.graph);
  // This first compares plan hashes over all ranks, so no memory is allocated if plans differ.
  take_memory();
  make_executors();
  make_states();
  store_.take_initial_values();
  if (config.async_save) count_copy();
  const MonitorKeys& monitors = EngineBody::config().get<MonitorKeys>();
  if (ModuleMonitor::wanted(monitors)) {
    const FlopsContext context{0, config.micro_batch, config.accumulation, comm.size()};
    modules_.emplace(monitors, context, comm.rank(), *runtime_.trace(), !options.trace,
                     own.module_report);
  }
}

// An asynchronous save copies state to host memory, in addition to the plan's host memory.
void Engine::count_copy() {
  const int64_t limit = config().memory_budget.host, copy = store_.copy_bytes();
  const bool fits = limit < 0 || plan_.memory.total(Tier::host) <= limit - copy;
  copy_fits_ = agree_max(runtime_.comm(), fits ? 0 : 1, "checkpoint copy") == 0;
  if (copy_fits_) runtime_.add_overhead("checkpoint copy", copy);
}

void Engine::recompile(const TrainedParams& trained) {
  replace_plan([&](size_t first) {
    return recompile_plan(plan_, forward_, config(), machine(), trained, true, first);
  });
}

void Engine::plan_replaced() {
  if (modules_) modules_->forget();
}

StateStore::Owner::Gradients Engine::gradients() const {
  if (micro_ == 0) return Gradients::none;
  return micro_ < config().accumulation ? Gradients::some : Gradients::all;
}

void Engine::require_idle(const char* call) {
  if (reached_ == Reached::idle && micro_ == 0) return;
  raise(DS_ERROR_STATE,
        "{} must not be called between ds_forward and ds_step: {} of {} micro-steps are done", call,
        micro_, config().accumulation);
}

StepForm Engine::next_form() const {
  const OptimizerConfig& optimizer = config().optimizer;
  return optimizer_of(optimizer).form(optimizer, control_.updates());
}

// A rank without data is in join(), where its host cannot set numbers, so it uses those of the
// first rank that has data. Only the end of a step shows that a rank had no data. So numbers are
// shared from the second such step on, and compare_numbers() also checks the first one. Collective
// if a rank had no data in the previous step.
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

// Called after a step in which a rank had no data and used the numbers that it had before. If these
// differ from those of the other ranks, the ranks have updated their parts of the parameters
// differently. Collective.
void Engine::compare_numbers() {
  std::string mine;
  for (size_t g = 0; g < control_.groups().size(); ++g) {
    for (const GroupNumber& number : group_numbers(config().optimizer))
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
  if (!optimizer_of(config().optimizer).whole_momentum()) return;
  // A reduced step leaves each rank with only its part of the new momentum. Steps of other forms
  // read the whole momentum, so `refresh` gathers it before the first such step.
  if (form_ != StepForm::reduced && momentum_in_parts_)
    runtime_.guarded([&] { store_.renew_params(); });
  momentum_in_parts_ = form_ == StepForm::reduced;
}

const StepResult& Engine::finish_step() {
  // Missing leaves show that a rank was in join().
  uneven_ = control_.leaves() < config().accumulation * runtime_.mesh().data_size();
  if (uneven_) compare_numbers();
  if (!control_.skips()) return control_.finish();
  if (control_.weight() == 0)
    return control_.finish(fmt::format("step {} is skipped: none of its micro-batches has a target",
                                       control_.steps() + 1));
  std::string tensor = bad_tensor();
  // The sign of a NaN has no meaning, so it is not printed.
  const double loss = control_.loss();
  return control_.finish(fmt::format(
      "step {} is skipped: loss {}, gradient norm {}; first tensor with NaN or infinity: {}",
      control_.steps() + 1, std::isnan(loss) ? std::abs(loss) : loss,
      std::abs(control_.scalars().grad_norm), tensor));
}

StepResult Engine::train_batch(std::span<const InputView> inputs, StepObserver* observer,
                               const StreamRef& stream) {
  require_idle("ds_train_batch");
  int64_t n = check_inputs(plan_.step(), inputs, config().accumulation, stream);
  begin_step();
  if (modules_) modules_->begin();
  runtime_.guarded([&] {
    for (int64_t m = 0; m < config().accumulation; ++m) stepper().set_extent(MicroId(m), n);
    put_inputs(inputs, 0, config().accumulation, n, stream);
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
  // The loop runs whole steps, to which this rank contributes no leaves. A step without any leaf
  // shows that all ranks have joined.
  for (int64_t steps = 0;; ++steps) {
    // This may run `refresh`, in which this rank must take part.
    begin_step(true);
    const Absence absence(control_);
    runtime_.guarded([&] {
      for (int64_t m = 0; m < config().accumulation; ++m) stepper().set_extent(MicroId(m), 1);
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
  if (reached_ == Reached::forward_done || micro_ >= config().accumulation) {
    raise(DS_ERROR_STATE, "ds_forward must follow {}; {} of {} micro-steps are done",
          reached_ == Reached::forward_done ? "ds_backward" : "ds_step", micro_,
          config().accumulation);
  }
  int64_t n = check_inputs(plan_.step(), inputs, 1, stream);
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
  runtime_.memory().read(runtime_.buffer(plan_.zero.memory.loss), micro_ * int64_t{sizeof loss},
                         &loss, sizeof loss);
  return loss;
}

void Engine::backward() {
  if (reached_ != Reached::forward_done)
    raise(DS_ERROR_STATE, "ds_backward must follow ds_forward, which has not been called");
  bool last = micro_ + 1 == config().accumulation;
  runtime_.guarded([&] {
    // The last backward runs on to the end of `losses`, so that the gradients of the step are
    // complete and its loss is known.
    stepper().run_to(last ? program().end_of(Phase::losses)
                          : program().end_of(Phase::backward, MicroId(micro_)));
  });
  reached_ = Reached::backward_done;
  ++micro_;
}

StepResult Engine::step() {
  if (reached_ != Reached::backward_done || micro_ != config().accumulation) {
    raise(DS_ERROR_STATE, "ds_step must follow {} micro-steps, but {} are done",
          config().accumulation, micro_);
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

// Returns the tensor that caused the step to be skipped. Unless a caller has written NaN or
// infinity to a gradient, runs the micro-steps again, up to the update, and checks every result;
// this changes only the gradient accumulators. Collective.
std::string Engine::bad_tensor() {
  std::string bad = control_.bad_gradient();
  runtime_.guarded([&] {
    if (agree_max(runtime_.comm(), bad.empty() ? 0 : 1, "edited gradients") != 0) {
      if (!bad.empty()) bad = fmt::format("the gradient written to '{}'", bad);
      return;
    }
    stepper().check_results(true);
    stepper().run_to(program().end_of(Phase::backward_last, MicroId(config().accumulation - 1)));
    stepper().abandon();
    bad = stepper().first_bad();
    stepper().check_results(false);
  });
  return bad.empty() ? "none on this rank" : bad;
}

void Engine::set(std::string_view name, double value) {
  constexpr std::string_view kPrefix = "adapter.";
  if (!name.starts_with(kPrefix)) return EngineBody::set(name, value);
  runtime_.require_usable();
  require(value == 1 || std::isnan(value),
          "{} must be 1, which chooses this adapter, or NaN, which gives the choice back, got {}",
          name, value);
  const int number =
      adapter_number(config().get<AdapterKeys>(), std::string(name.substr(kPrefix.size())));
  adapter_ = std::isnan(value) ? 0 : number;
}

double Engine::eval_batch(std::span<const InputView> inputs, const StreamRef& stream) {
  const EvalLeaf own = eval_alone(inputs, stream);
  std::vector<EvalLeaf> all(static_cast<size_t>(runtime_.data_ranks().size()));
  runtime_.guarded(
      [&] { runtime_.data_ranks().all_gather(&own, all.data(), sizeof own, "eval loss"); });
  double sum = 0, weights = 0;
  for (const EvalLeaf& leaf : all) {
    if (leaf.adapter != own.adapter)
      raise(DS_ERROR_STATE, "ranks have chosen different adapters: number {} here, {} on another",
            own.adapter, leaf.adapter);
    if (leaf.weight == 0) continue;
    sum += static_cast<double>(leaf.weight) * static_cast<double>(leaf.loss);
    weights += leaf.weight;
  }
  // Without any target the loss is 0, as cross_entropy defines it.
  return weights == 0 ? 0 : sum / weights;
}

EvalLeaf Engine::eval_alone(std::span<const InputView> inputs, const StreamRef& stream) {
  require_idle("ds_eval_batch");
  store_.require_refreshed();
  const ProgramKey key(ProgramKind::eval, adapter_);
  int64_t n = check_inputs(plan_.program(key), inputs, 1, stream);
  control_.begin_evaluation();
  EvalLeaf own{.adapter = adapter_};
  runtime_.guarded([&] {
    executor(key).set_extent(MicroId(0), n);
    put_inputs(inputs, 0, 1, n, stream);
    executor(key).run();
    runtime_.memory().read(runtime_.buffer(plan_.zero.memory.eval_loss), 0, &own.loss,
                           sizeof own.loss);
    if (plan_.zero.memory.eval_weight.exists())
      runtime_.memory().read(runtime_.buffer(plan_.zero.memory.eval_weight), 0, &own.weight,
                             sizeof own.weight);
    if (plan_.zero.memory.eval_rewards.exists())
      runtime_.memory().read(runtime_.buffer(plan_.zero.memory.eval_rewards), 0, own.rewards.data(),
                             sizeof own.rewards);
  });
  return own;
}

std::vector<PairRewards> Engine::rewards() {
  const BufferId of_step = plan_.zero.memory.rewards;
  if (!of_step.exists()) return {};
  std::vector<PairRewards> out(static_cast<size_t>(config().accumulation));
  runtime_.memory().read(runtime_.buffer(of_step), 0, out.data(),
                         std::ssize(out) * int64_t{sizeof(PairRewards)});
  return out;
}

Inferred Engine::infer(std::span<const InputView> inputs, const StreamRef& stream) {
  require_idle("ds_infer");
  store_.require_refreshed();
  if (!plan_.has(ProgramKind::infer))
    raise(DS_ERROR_STATE, "ds_infer needs a graph with a second output, got {} outputs{}",
          plan_.graph.outputs.size(),
          runtime_.options().programs.infer ? "" : " and an engine made without it");
  const ProgramKey key(ProgramKind::infer, adapter_);
  int64_t n = check_inputs(plan_.program(key), inputs, 1, stream);
  control_.begin_evaluation();
  runtime_.guarded([&] {
    executor(key).set_extent(MicroId(0), n);
    put_inputs(inputs, 0, 1, n, stream);
    executor(key).run();
  });
  const Shape& shape = plan_.graph.type(plan_.graph.outputs[1].value).shape;
  Inferred out;
  for (const Dim& d : shape.dims()) out.dims.push_back(d.symbolic ? n : d.extent);
  out.values.resize(static_cast<size_t>(shape.numel(n)));
  runtime_.memory().read_floats(runtime_.buffer(plan_.zero.memory.logits), 0,
                                static_cast<int64_t>(out.values.size()), out.values.data());
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
      require(!reads(program, plan_.zero.memory.inputs[i]),
              "inputs[{}], '{}', must not be NULL: it is needed", i, value.name);
      continue;
    }
    // libds rounds f32 to f16 on the host while it copies the input, which does not work on a
    // stream.
    bool cast = config().auto_cast && value.type.dtype == DS_DTYPE_F16 &&
                inputs[i].dtype == DS_DTYPE_F32 && !stream;
    require(cast || inputs[i].dtype == value.type.dtype, "input '{}' must be {}, got {}",
            value.name, dtype_name(value.type.dtype), dtype_name(inputs[i].dtype));
    int64_t row = value.type.shape.numel(1) * micros;
    require(inputs[i].numel > 0 && inputs[i].numel % row == 0,
            "input '{}' must have a multiple of {} elements, got {}", value.name, row,
            inputs[i].numel);
    int64_t mine = value.type.shape.symbolic() ? inputs[i].numel / row : n;
    require(n < 0 || mine == n, "input '{}' has {} rows, but the inputs before it have {}",
            value.name, mine, n);
    n = mine;
    require(n <= g.bound, "input '{}' has {} rows, but the declared bound is {}", value.name, n,
            g.bound);
    if (value.type.dtype != DS_DTYPE_I32) continue;
    // The host reads ids at once, so the stream must have finished writing them.
    if (!std::exchange(waited, true)) stream->synchronize();
    check_ids(i, inputs[i], micros);
  }
  return std::max<int64_t>(n, 1);
}

// Checks that ids are within the table or the logits that they index, and that documents are
// consistent with the rows. Inputs that are read only by custom operations, or by no operation, are
// not checked. An id of -100, which means "no loss", is allowed only in an input that is used only
// for targets.
void Engine::check_ids(size_t input, const InputView& view, int64_t micros) const {
  const Graph& g = plan_.graph;
  ValueId value = g.inputs[input];
  // Ids must be below `limit`; documents must have at most `most` rows, if that is not 0.
  int64_t limit = INT32_MAX, most = 0;
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

// Copies the inputs to their buffers. With a stream, the copies run on the stream, and work that
// the engine starts later waits for them.
void Engine::put_inputs(std::span<const InputView> inputs, int64_t micro, int64_t micros, int64_t n,
                        const StreamRef& stream) {
  for (size_t i = 0; i < inputs.size(); ++i) {
    // Each micro-step has a slot of `bound` rows in the buffer and fills the first n of them.
    const TensorType& type = plan_.graph.type(plan_.graph.inputs[i]);
    int64_t unit = size_of(type.dtype);
    int64_t bytes = type.shape.numel(n) * unit, slot = type.shape.numel(plan_.graph.bound) * unit;
    const auto* from = static_cast<const std::byte*>(inputs[i].data);
    if (!from) continue;
    const Buffer& to = runtime_.buffer(plan_.zero.memory.inputs[i]);
    for (int64_t m = 0; m < micros; ++m) {
      int64_t begin = (micro + m) * slot;
      if (inputs[i].dtype != type.dtype) {
        const int64_t count = bytes / unit;
        const auto* floats = static_cast<const float*>(inputs[i].data) + m * count;
        runtime_.memory().write_floats(to, begin / unit, count, floats);
        continue;
      }
      if (stream) {
        stream->queue().copy(runtime_.memory().address(to) + begin, from + m * bytes, bytes);
      } else {
        runtime_.memory().write(to, begin, from + m * bytes, bytes);
      }
    }
  }
  runtime_.order_after(stream);
}

}  // namespace ds
