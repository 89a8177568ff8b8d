// Delegate mode at run time: calls of a host become runs of the programs that compile/delegate.cpp
// compiles.
//
// Problem: each call must leave the engine as if the whole step were one program, whether or not
// the host repeats the calls of the step before, and a refused call must change nothing.
//
// A call either *follows* the recorded step or is served *call by call*. To follow means to run the
// recorded program up to and including the instruction of the call, and then to do the host's part:
// to set the place of a lease, or to copy in a gradient (delegate_record.cpp). Call by call, a
// lease runs the gather fragment of its bucket, and a gradient is kept in a separate place until
// its bucket is complete and the reduce fragment runs, from the last bucket down as in the recorded
// step (delegate_fragments.cpp).
//
// Invariants. Host code accesses device memory only if the device shares it with the host;
// otherwise a view is a copy, and the engine copies gradients in. A place for a gradient belongs to
// the host from grad_view() to grad_ready(). The host acts only where a run has stopped: everything
// that its instruction waits for has ended, and nothing after it has begun. A bucket is never
// gathered into other memory while a lease of it is open, so a leased address stays valid. All
// ranks make the same calls and compare them before each update, so no rank updates alone. A step
// begins with its first gradient or backward (docs/adr/0018), because leases before it may be an
// evaluation.
//
// Cost: a followed call runs the program up to one instruction; call by call, nothing is
// prefetched. A step that left the recorded order is recorded again after its update.

#include "engine/delegate.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <exception>
#include <iterator>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "core/base/log.h"
#include "core/device/view.h"
#include "core/graph/param_slice.h"
#include "engine/module_monitor.h"
#include "exec/executor.h"
#include "monitor/keys.h"
#include "nn/adapter_keys.h"
#include "zero/reduce.h"

namespace ds {

namespace {

// Returns the configuration with smaller buckets, unless it says how large they are. The gradients
// of a bucket wait in memory of their own until all of them have arrived, so a bucket of the usual
// size would hold the gradients of most models twice.
Config with_host_buckets(Config config) {
  constexpr int64_t kMost = int64_t{1} << 24;
  int64_t& size = config.zero.reduce_bucket_size;
  if (size == ZeroConfig().reduce_bucket_size &&
      !config.origins.contains("zero_optimization.reduce_bucket_size"))
    size = kMost;
  return config;
}

}  // namespace

DelegateEngine::DelegateEngine(Config config, Communicator& comm, EngineOptions options)
    : EngineBody(with_host_buckets(std::move(config)), comm, std::move(options),
                 StateStore::Keeps::training),
      micros_(this->config()),
      leases_(runtime_, plan_, micros_) {
  if (this->config().sparse_gradients)
    raise(DS_ERROR_CONFIG, "{}: true needs a graph, whose ids name rows; a delegate has none",
          KeyName("sparse_gradients"));
  if (this->config().get<AdapterKeys>().on())
    raise(DS_ERROR_UNSUPPORTED,
          "{}: \"lora\" needs a graph; in delegate mode the host adds adapters, such as PEFT's, to "
          "its own model",
          KeyName("adapter.type"));
  if (this->config().gradient_compression.on())
    raise(DS_ERROR_UNSUPPORTED,
          "{}: \"{}\" needs a graph, whose step keeps gradients on their rank",
          KeyName("gradient_compression.type"), this->config().gradient_compression.type);
  if (this->config().optimizer.compressed())
    raise(
        DS_ERROR_UNSUPPORTED,
        "{}: {} needs a graph: after its freeze a step has another program, and a delegate engine "
        "records only one",
        KeyName("optimizer.type"), this->config().optimizer.type);
}

ParamId DelegateEngine::add_param(const std::string& name, const std::vector<int64_t>& shape,
                                  DType dtype) {
  if (started_)
    raise(DS_ERROR_STATE, "parameter '{}' must be added before ds_engine_start", TensorName(name));
  require(!name.empty(), "name must not be empty");
  const IdVector<ParamId, std::string>& names = store_.param_names();
  require(std::find(names.begin(), names.end(), name) == names.end(),
          "parameter '{}' is added twice", TensorName(name));
  const DType compute = config().compute;
  if (dtype == DS_DTYPE_NONE) dtype = compute;
  require(dtype == compute || dtype == DS_DTYPE_F32, "dtype of parameter '{}' must be {}{}, got {}",
          TensorName(name), dtype_name(compute), compute == DS_DTYPE_F32 ? "" : " or f32",
          dtype_name(dtype));
  std::vector<Dim> dims;
  for (int64_t d : shape) {
    require(d >= 0, "parameter '{}' must not have a negative dimension, got {}", TensorName(name),
            d);
    dims.emplace_back(d);
  }
  int64_t numel = Shape(dims).numel(1);
  constexpr int64_t kMost = int64_t{1} << 40;
  require(numel <= kMost, "parameter '{}' must have at most {} elements, got {}", TensorName(name),
          kMost, numel);
  store_.add_param(name, ParamSlice::whole(shape));
  shapes_.emplace_back(std::move(dims));
  ParamSpec spec{name, numel};
  spec.dtype = dtype;
  return specs_.add(std::move(spec));
}

void DelegateEngine::start() {
  runtime_.require_usable();
  if (started_) raise(DS_ERROR_STATE, "ds_engine_start must be called once");
  compile([&](size_t) {
    if (specs_.empty())
      raise(DS_ERROR_STATE, "ds_engine_start needs a parameter: ds_engine_param_add");
    return compile_delegate(config(), specs_, shapes_, runtime_.comm().rank(), runtime_.mesh(),
                            machine());
  });
  take_memory();
  if (ModuleMonitor::wanted(config().get<MonitorKeys>()) && runtime_.comm().rank() == 0) {
    log_line(
        LogLevel::warning,
        "wall_clock_breakdown and flops_profiler have no effect in delegate mode: they report by "
        "module, and the engine does not know the host's modules");
  }
  started_ = true;
  // This precedes everything that may fail, because callers may also ask a poisoned engine about
  // its parameters.
  leases_.begin();
  make_executors();
  make_states();
  try {
    store_.take_initial_values();
  } catch (const std::exception& error) {
    runtime_.poison(error);
    throw;
  }
}

void DelegateEngine::make_states() {
  EngineBody::make_states();
  runtime_.guarded([&] { executor(ProgramKind::refresh).run(); });
}

void DelegateEngine::require_started() const {
  if (started_) return;
  raise(DS_ERROR_STATE, "ds_engine_start must come first: it ends the registration of parameters");
}

void DelegateEngine::recompile(const TrainedParams& trained) {
  replace_plan([&](size_t) { return recompile_delegate(plan_, config(), machine(), trained); });
}

void DelegateEngine::plan_ends() {
  forget_late_programs();
  told_ = false;
}

void DelegateEngine::gather(std::span<const ParamId> params) {
  for (ParamId p : params) store_.check_param(p);
  require_started();
  store_.require_refreshed();
  if (params.empty()) return;
  bool followed = follow({HostEvent::Kind::gather, {params.begin(), params.end()}});
  runtime_.guarded([&] {
    for (ParamId p : params) {
      if (leases_.params[p].leases == 0 && !followed) lease(p);
      ++leases_.params[p].leases;
      ++leased_;
    }
  });
}

void DelegateEngine::release(std::span<const ParamId> params, const StreamRef& stream) {
  std::map<ParamId, int32_t> wanted;
  for (ParamId p : params) {
    store_.check_param(p);
    ++wanted[p];
  }
  for (auto [p, count] : wanted) {
    int32_t have = started_ ? leases_.params[p].leases : 0;
    if (count <= have) continue;
    raise(DS_ERROR_STATE, "parameter '{}' is released {} times, but has {} leases",
          TensorName(specs_[p].name), count, have);
  }
  if (params.empty()) return;
  runtime_.guarded([&] { runtime_.order_after(stream); });
  follow({HostEvent::Kind::release, {params.begin(), params.end()}});
  for (ParamId p : params) {
    --leased_;
    if (--leases_.params[p].leases == 0) end_lease(p);
  }
}

DelegateEngine::Seen DelegateEngine::view(ParamId param, const StreamRef& stream) {
  store_.check_param(param);
  require_started();
  if (leases_.params[param].leases == 0) runtime_.require_usable();
  const bool own = stream || runtime_.shared_memory();
  const bool lasting = own && !plan_.zero.buckets[store_.bucket_of(param)].partitioned;
  if (leases_.params[param].leases == 0 && !lasting) {
    raise(DS_ERROR_STATE, "parameter '{}' must be gathered before it is viewed: {}",
          TensorName(specs_[param].name),
          own ? "each rank keeps a part of it" : "host code cannot read the memory of the device");
  }
  TensorView view = leases_.shaped(param);
  auto [buffer, begin] = lasting ? leases_.own_place(param) : leases_.params[param].place;
  if (own) {
    view.data = runtime_.memory().address(*buffer) + begin;
    return {view, runtime_.memory().hold(view.data), stream != nullptr};
  }
  // Host code cannot read device memory, so the first view of a lease makes a copy.
  std::shared_ptr<Arena>& copy = leases_.params[param].copy;
  if (!copy) {
    copy = runtime_.host_bytes(view.bytes());
    runtime_.guarded(
        [&] { runtime_.memory().read(*buffer, begin, copy->address(), view.bytes()); });
  }
  view.data = copy->address();
  return {view, copy};
}

void DelegateEngine::require_training(const char* call) const {
  if (evaluating_)
    raise(DS_ERROR_STATE, "{} needs training: ds_engine_evaluate has ended it", call);
}

void DelegateEngine::evaluate(bool on) {
  runtime_.guarded([] {});
  begin_change("ds_engine_evaluate");
  evaluating_ = on;
}

void DelegateEngine::check_gradient(ParamId param, const char* call) const {
  require_started();
  require_training(call);
  TensorName name(specs_[param].name);
  if (trained_.is_frozen(param))
    raise(DS_ERROR_STATE, "parameter '{}' is frozen: it accepts no gradient", name);
  if (leases_.params[param].grad.given)
    raise(DS_ERROR_STATE, "parameter '{}' has its gradient of this micro-step already", name);
  micros_.require_more(fmt::format("gradient of '{}'", specs_[param].name));
}

DelegateEngine::Seen DelegateEngine::grad_view(ParamId param, const StreamRef& stream) {
  store_.check_param(param);
  check_gradient(param, "ds_engine_grad_view");
  TensorView view = leases_.shaped(param);
  auto& grad = leases_.params[param].grad;
  if (!grad.place.buffer) {
    if (!begun_) begin_step();
    bool followed = follow({HostEvent::Kind::grad_view, {param}});
    begun_ = true;
    micros_.mark_gradient();
    if (!followed) grad.place = leases_.grad_place(param);
  }
  if (stream) grad.stream = stream;
  if (stream || runtime_.shared_memory()) {
    view.data = runtime_.memory().address(*grad.place.buffer) + grad.place.begin;
    return {view, runtime_.memory().hold(view.data), stream != nullptr};
  }
  if (!grad.room) grad.room = runtime_.host_bytes(view.bytes());
  view.data = grad.room->address();
  return {view, grad.room};
}

void DelegateEngine::grad_ready(ParamId param, const Gradient& grad) {
  store_.check_param(param);
  require_started();
  TensorName name(specs_[param].name);
  const DType dtype = plan_.host.types[param].dtype;
  require(grad.numel == specs_[param].numel, "gradient of '{}' must have {} elements, got {}", name,
          specs_[param].numel, grad.numel);
  require(grad.dtype == dtype || (grad.dtype == DS_DTYPE_F32 && !grad.on_device),
          "gradient of '{}' must be {}{}, got {}", name, dtype_name(dtype),
          grad.on_device          ? " in memory of the device"
          : dtype == DS_DTYPE_F32 ? ""
                                  : " or f32",
          dtype_name(grad.dtype));
  check_gradient(param, "ds_grad_ready");
  if (!begun_) begin_step();
  Leases::Param& held = leases_.params[param];
  // If the host wrote to the place on one stream and passes the gradient on another stream, or
  // without a stream, waits until the first stream has finished.
  if (held.grad.stream && held.grad.stream != grad.stream) held.grad.stream->synchronize();
  // If the call follows the record, host_call() puts pending_ into the program's memory.
  pending_ = grad;
  bool followed = follow({HostEvent::Kind::grad, {param}});
  begun_ = true;
  micros_.mark_gradient();
  held.grad.given = held.has_gradient = true;
  --leases_.buckets[store_.bucket_of(param)].missing;
  if (!followed) {
    runtime_.guarded([&] {
      leases_.put(pending_, leases_.grad_place(param), grad.numel);
      reduce_ready(false);
    });
  }
  pending_ = {};
}

// Nothing before the update reads its numbers, so they may change until then. The recorded step has
// the configured number of micro-steps: a step with another number runs call by call.
void DelegateEngine::set(std::string_view name, double value) {
  runtime_.require_usable();
  require_started();
  if (!micros_.get(name)) return EngineBody::set(name, value);
  require_training(fmt::format("ds_engine_set of {}", name).c_str());
  micros_.set(name, value, most_micro_steps(plan_.zero));
  if (micros_.usual() || !order_.following()) return;
  runtime_.guarded([&] { order_.events().empty() ? order_.leave() : leave_record(); });
}

void DelegateEngine::end_micro_step() {
  require_started();
  require_training("ds_backward");
  micros_.require_more("ds_backward");
  micros_.require_weight();
  if (!begun_) begin_step();
  leases_.wait_for_writers();
  bool followed = follow({HostEvent::Kind::end, {}});
  begun_ = true;
  runtime_.guarded([&] {
    if (!followed) reduce_ready(true);
    micros_.end();
    if (micros_.all_done()) control_.set_weight(micros_.total(runtime_.data_ranks()));
  });
  leases_.begin_micro_step();
}

StepResult DelegateEngine::step() {
  require_started();
  require_training("ds_step");
  if (!micros_.all_done()) {
    raise(
        DS_ERROR_STATE,
        "ds_step must follow {} micro-steps, but {} are done; ds_engine_set of micro_steps changes "
        "their number",
        micros_.count(), micros_.done());
  }
  require_released("ds_step");
  runtime_.guarded([&] { finish_calls(); });
  std::string reason;
  if (control_.skips() && control_.weight() == 0) {
    reason = fmt::format("step {} is skipped: the weights of its micro-steps are all 0",
                         control_.steps() + 1);
  } else if (control_.skips()) {
    reason =
        fmt::format("step {} is skipped: gradient norm {}; first tensor with NaN or infinity: {}",
                    control_.steps() + 1, std::abs(control_.scalars().grad_norm), bad_tensor());
  }
  forget_calls();
  micros_.begin();
  return reason.empty() ? control_.finish() : control_.finish(reason);
}

// Sums of the forgotten micro-steps stay where they are: the first micro-step of the next step
// overwrites them.
void DelegateEngine::drop_step() {
  require_started();
  require_training("ds_engine_drop_step");
  require_released("ds_engine_drop_step");
  runtime_.guarded([&] {
    leases_.wait_for_writers();
    runtime_.settle();
    forget_calls();
    micros_.begin();
  });
  leases_.begin_micro_step();
}

// Returns the first gradient with NaN or infinity in this rank's part of the sums over ranks.
std::string DelegateEngine::bad_tensor() {
  for (ParamId p : specs_.ids()) {
    if (trained_.is_frozen(p)) continue;
    std::vector<float> sums = store_.read_local(p, "grad");
    if (!std::all_of(sums.begin(), sums.end(), [](float x) { return std::isfinite(x); }))
      return fmt::format("the gradient of '{}'", specs_[p].name);
  }
  return "none on this rank";
}

std::string DelegateEngine::model_text() const {
  std::string text = "delegate";
  for (ParamId p : specs_.ids()) {
    text += " " + specs_[p].name + shapes_[p].text();
    if (started_ && trained_.is_frozen(p)) text += " frozen";
  }
  return text;
}

Executor& DelegateEngine::refresh() {
  require_started();
  return EngineBody::refresh();
}

void DelegateEngine::begin_step() {
  store_.require_refreshed();
  for (Leases::Param& param : leases_.params) param.has_gradient = false;
  store_.changed();
  control_.begin_step();
}

StateStore::Owner::Gradients DelegateEngine::gradients() const {
  if (!begun_) return Gradients::none;
  return micros_.all_done() && !micros_.cut_short() ? Gradients::all : Gradients::some;
}

void DelegateEngine::require_idle(const char* call) {
  require_started();
  if (!begun_) return;
  raise(DS_ERROR_STATE, "{} must not be called inside a step: {} of {} micro-steps are done", call,
        micros_.done(), micros_.count());
}

void DelegateEngine::require_released(const char* call) const {
  for (ParamId p : leases_.params.ids()) {
    if (leases_.params[p].leases > 0)
      raise(DS_ERROR_STATE,
            "{} must not be called while parameter '{}' is leased: it has {} leases", call,
            TensorName(specs_[p].name), leases_.params[p].leases);
  }
}

void DelegateEngine::require_unleased(const char* call) {
  require_idle(call);
  require_released(call);
}

void DelegateEngine::begin_change(const char* call) {
  require_unleased(call);
  runtime_.guarded([&] { forget_calls(); });
}

std::string DelegateEngine::print_plan() const {
  if (!started_) return "";
  return plan_.program(plan_.has(ProgramKind::step) ? ProgramKind::step : ProgramKind::update)
      .print();
}

}  // namespace ds
