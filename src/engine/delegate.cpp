// Delegate mode at run time: calls of a host become runs of programs (compile/delegate.cpp has
// these).
//
// Problem: each call must leave the engine as if the whole step were one program, whether or not
// the host does what it did in the step before, and calls that are refused must change nothing.
//
// A call either *follows* the recorded step or is served *call by call*. Following means to run the
// recorded program up to and including the instruction of the call, and then to do the host's part:
// a lease learns where its bytes are, a gradient is copied in (delegate_record.cpp). Call by call,
// a lease runs the gather fragment of its bucket, and a gradient goes to a place of its own until
// its bucket is complete and the reduce fragment runs, from the last bucket down as the recorded
// step does (delegate_fragments.cpp).
//
// Invariants:
//   Host code touches memory of the device only where that is the host's: else a view is a copy,
//   and the engine copies gradients in. A place for a gradient is the host's from grad_view() to
//   grad_ready(). The host acts only where a run has stopped: what its instruction waits for has
//   ended, and nothing behind it has begun. A bucket is never gathered into other memory while a
//   lease of it is open, so a leased address stays. All ranks make the same calls. They compare
//   them before each update, so no rank updates alone. A step begins with its first gradient or
//   backward (docs/adr/0018): what is leased before may be evaluation.
//
// Cost: following, a run up to an instruction for each call; call by call, nothing is prefetched. A
// step that left its order is recorded anew behind its update.

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

namespace ds {

DelegateEngine::DelegateEngine(Config config, Communicator& comm, EngineOptions options)
    : runtime_(std::move(config), comm, std::move(options), {plan_.zero, plan_.init, plan_.hash}),
      control_(runtime_.config(), runtime_.mesh().data_size()),
      store_(runtime_, control_, *this, plan_.zero, StateStore::Keeps::training),
      trained_(runtime_, control_, store_, [this](const auto& trained) { recompile(trained); }),
      checkpoints_(runtime_, control_, store_, &trained_, [this] { make_states(); }) {
  if (this->config().sparse_gradients)
    raise(DS_ERROR_CONFIG, "{}: true needs a graph, whose ids name rows; a delegate has none",
          KeyName("sparse_gradients"));
  if (this->config().gradient_compression.on())
    raise(DS_ERROR_UNSUPPORTED,
          "{}: \"{}\" needs a graph, whose step keeps gradients on their rank",
          KeyName("gradient_compression.type"), this->config().gradient_compression.type);
  if (this->config().optimizer.compressed())
    raise(DS_ERROR_UNSUPPORTED,
          "{}: {} needs a graph: behind its freeze a step has another program, which a delegate "
          "cannot record",
          KeyName("optimizer.type"), this->config().optimizer.type);
}

ParamId DelegateEngine::add_param(const std::string& name, const std::vector<int64_t>& shape) {
  if (started_)
    raise(DS_ERROR_STATE, "parameter '{}' must be added before ds_engine_start", TensorName(name));
  require(!name.empty(), "name must not be empty");
  const IdVector<ParamId, std::string>& names = store_.param_names();
  require(std::find(names.begin(), names.end(), name) == names.end(),
          "parameter '{}' is added twice", TensorName(name));
  std::vector<Dim> dims;
  for (int64_t d : shape) {
    require(d >= 0, "parameter '{}' must have no negative dimension, got {}", TensorName(name), d);
    dims.emplace_back(d);
  }
  int64_t numel = Shape(dims).numel(1);
  constexpr int64_t kMost = int64_t{1} << 40;
  require(numel <= kMost, "parameter '{}' must have at most {} elements, got {}", TensorName(name),
          kMost, numel);
  store_.add_param(name, ParamSlice::whole(shape));
  shapes_.emplace_back(std::move(dims));
  return specs_.add({name, numel});
}

void DelegateEngine::start() {
  runtime_.require_usable();
  if (started_) raise(DS_ERROR_STATE, "ds_engine_start must be called once");
  MemoryPlan memory;
  runtime_.compile([&] {
    if (specs_.empty())
      raise(DS_ERROR_STATE, "ds_engine_start needs a parameter: ds_engine_param_add");
    plan_ = compile_delegate(config(), specs_, shapes_, runtime_.comm().rank(), runtime_.mesh(),
                             machine());
    memory = fragment_memory(plan_);
    check_budget(plan_.zero.buffers, memory, config().memory_budget);
  });
  for (int t = 0; t < 3; ++t) fragment_transient_[t] = memory.tiers[t].transient;
  runtime_.start(memory, unbacked_bytes());
  if (ModuleMonitor::wanted(config()) && runtime_.comm().rank() == 0) {
    log_line(LogLevel::warning,
             "wall_clock_breakdown and flops_profiler report by module, which a host that computes "
             "itself does "
             "not name: no reports");
  }
  started_ = true;
  // Before anything that may fail: a poisoned engine is asked about its parameters, too.
  leases_.assign(specs_.size(), 0);
  where_.assign(specs_.size(), {});
  copies_.assign(specs_.size(), nullptr);
  has_grad_.assign(specs_.size(), 0);
  bucket_leases_.assign(plan_.lease.size(), 0);
  begin_micro_step();
  runtime_.make_executors([&] {
    refresh_ = executor(plan_.refresh);
    update_ = executor(plan_.update);
  });
  make_states();
  try {
    store_.take_initial_values();
  } catch (const std::exception& error) {
    runtime_.poison(error);
    throw;
  }
}

void DelegateEngine::make_states() {
  std::unique_ptr<Executor> init;
  runtime_.make_executors([&] { init = executor(plan_.init); });
  runtime_.guarded([&] {
    init->run();
    refresh_->run();
  });
  runtime_.forget_last_executor();
}

void DelegateEngine::require_started() const {
  if (started_) return;
  raise(DS_ERROR_STATE, "ds_engine_start must come first: it ends the registration of parameters");
}

int32_t DelegateEngine::trained(BucketId bucket) const {
  int32_t count = 0;
  for (const ParamPlace& p : plan_.zero.layout.buckets[bucket].params)
    count += !trained_.is_frozen(p.param);
  return count;
}

void DelegateEngine::recompile(const TrainedParams& trained) {
  DelegatePlan next;
  MemoryPlan memory;
  runtime_.compile([&] {
    next = recompile_delegate(plan_, config(), machine(), trained);
    memory = fragment_memory(next);
    check_budget(next.zero.buffers, memory, config().memory_budget);
  });
  runtime_.guarded([&] {
    end_all_executors();
    forget_record();
    runtime_.replace_programs([&] { plan_ = std::exchange(next, {}); });
    for (int t = 0; t < 3; ++t) fragment_transient_[t] = memory.tiers[t].transient;
    runtime_.grow(memory, unbacked_bytes());
    make_all_executors();
    begin_micro_step();
  });
}

void DelegateEngine::end_all_executors() {
  runtime_.end_executors([&] {
    step_.reset();
    fragments_.clear();
    refresh_.reset();
    update_.reset();
  });
}

void DelegateEngine::make_all_executors() {
  runtime_.make_executors([&] {
    refresh_ = executor(plan_.refresh);
    update_ = executor(plan_.update);
    if (record_) step_ = executor(record_->program);
  });
}

void DelegateEngine::forget_record() {
  record_.reset();
  following_ = told_ = false;
}

void DelegateEngine::begin_micro_step() {
  has_grad_.assign(specs_.size(), 0);
  grad_where_.assign(specs_.size(), {});
  grad_room_.assign(specs_.size(), nullptr);
  grad_streams_.assign(specs_.size(), nullptr);
  reduced_.assign(plan_.lease.size(), 0);
  missing_.clear();
  for (BucketId b : plan_.lease.ids()) missing_.push_back(trained(b));
  next_reduce_ = plan_.lease.last();
}

void DelegateEngine::gather(std::span<const ParamId> params) {
  for (ParamId p : params) store_.check_param(p);
  require_started();
  store_.require_refreshed();
  if (params.empty()) return;
  bool followed = follow({HostEvent::Kind::gather, {params.begin(), params.end()}});
  runtime_.guarded([&] {
    for (ParamId p : params) {
      if (leases_[p] == 0 && !followed) lease(p);
      ++leases_[p];
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
    int32_t have = started_ ? leases_[p] : 0;
    if (count <= have) continue;
    raise(DS_ERROR_STATE, "parameter '{}' is released {} times, but has {} leases",
          TensorName(specs_[p].name), count, have);
  }
  if (params.empty()) return;
  runtime_.guarded([&] { runtime_.order_after(stream); });
  follow({HostEvent::Kind::release, {params.begin(), params.end()}});
  for (ParamId p : params) {
    --leased_;
    if (--leases_[p] == 0) end_lease(p);
  }
}

TensorView DelegateEngine::shaped(ParamId param) const {
  TensorView view;
  view.dtype = config().compute;
  view.rank = static_cast<int>(shapes_[param].rank());
  for (size_t d = 0; d < shapes_[param].rank(); ++d) view.dims[d] = shapes_[param][d].extent;
  return view;
}

DelegateEngine::Seen DelegateEngine::view(ParamId param, const StreamRef& stream) {
  store_.check_param(param);
  if (!started_ || leases_[param] == 0) {
    raise(DS_ERROR_STATE, "parameter '{}' must be gathered before it is viewed",
          TensorName(specs_[param].name));
  }
  TensorView view = shaped(param);
  auto [buffer, begin] = where_[param];
  if (stream || runtime_.shared_memory()) {
    view.data = runtime_.address(*buffer) + begin;
    return {view, runtime_.hold(view.data), stream != nullptr};
  }
  std::shared_ptr<Arena>& copy = copies_[param];
  if (!copy) {
    copy = runtime_.host_bytes(view.bytes());
    runtime_.guarded([&] { runtime_.read(*buffer, begin, copy->address(), view.bytes()); });
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
    raise(DS_ERROR_STATE, "parameter '{}' is frozen: it takes no gradient", name);
  if (has_grad_[param])
    raise(DS_ERROR_STATE, "parameter '{}' has its gradient of this micro-step already", name);
  if (micro_ >= config().accumulation) {
    raise(DS_ERROR_STATE, "gradient of '{}' comes after {} of {} micro-steps", name, micro_,
          config().accumulation);
  }
}

DelegateEngine::Seen DelegateEngine::grad_view(ParamId param, const StreamRef& stream) {
  store_.check_param(param);
  check_gradient(param, "ds_engine_grad_view");
  TensorView view = shaped(param);
  if (!grad_where_[param].buffer) {
    if (!begun_) begin_step();
    bool followed = follow({HostEvent::Kind::grad_view, {param}});
    begun_ = true;
    if (!followed)
      grad_where_[param] = {&runtime_.buffer(plan_.grads[store_.bucket_of(param)]),
                            own_place(param).begin};
  }
  if (stream) grad_streams_[param] = stream;
  if (stream || runtime_.shared_memory()) {
    view.data = runtime_.address(*grad_where_[param].buffer) + grad_where_[param].begin;
    return {view, runtime_.hold(view.data), stream != nullptr};
  }
  std::shared_ptr<Arena>& room = grad_room_[param];
  if (!room) room = runtime_.host_bytes(view.bytes());
  view.data = room->address();
  return {view, room};
}

void DelegateEngine::grad_ready(ParamId param, const Gradient& grad) {
  store_.check_param(param);
  require_started();
  TensorName name(specs_[param].name);
  DType compute = config().compute;
  require(grad.numel == specs_[param].numel, "gradient of '{}' must have {} elements, got {}", name,
          specs_[param].numel, grad.numel);
  require(grad.dtype == compute || (grad.dtype == DS_DTYPE_F32 && !grad.on_device),
          "gradient of '{}' must be {}{}, got {}", name, dtype_name(compute),
          grad.on_device ? " in memory of the device" : " or f32", dtype_name(grad.dtype));
  check_gradient(param, "ds_grad_ready");
  if (!begun_) begin_step();
  if (grad_streams_[param] && grad_streams_[param] != grad.stream)
    grad_streams_[param]->synchronize();
  pending_ = grad;
  bool followed = follow({HostEvent::Kind::grad, {param}});
  begun_ = true;
  has_grad_[param] = 1;
  --missing_[store_.bucket_of(param)];
  if (!followed) {
    runtime_.guarded([&] {
      put_pending(runtime_.buffer(plan_.grads[store_.bucket_of(param)]), own_place(param).begin,
                  grad.numel);
      reduce_ready(false);
    });
  }
  pending_ = {};
}

void DelegateEngine::set_weight(double weight) {
  const char* call = "ds_engine_set of micro_weight";
  if (!config().by_tokens())
    raise(DS_ERROR_STATE, "{} needs loss_average \"tokens\", got \"{}\"", call,
          config().loss_average);
  require_started();
  require_training(call);
  require(std::isfinite(weight) && weight >= 0,
          "micro_weight must be a finite number of at least 0, got {}", weight);
  if (micro_ >= config().accumulation) {
    raise(DS_ERROR_STATE, "{} comes after {} of {} micro-steps: ds_step must follow", call, micro_,
          config().accumulation);
  }
  weight_ = weight;
}

void DelegateEngine::take_weight() {
  if (!config().by_tokens()) return;
  weights_.resize(static_cast<size_t>(micro_));
  weights_.push_back(*std::exchange(weight_, std::nullopt));
  if (std::ssize(weights_) < config().accumulation) return;
  const auto ranks = static_cast<size_t>(runtime_.data_ranks().size());
  std::vector<double> all(weights_.size() * ranks);
  runtime_.data_ranks().all_gather(weights_.data(), all.data(), weights_.size() * sizeof(double),
                                   "weights of micro-steps");
  double sum = 0;
  for (size_t m = 0; m < weights_.size(); ++m) {
    for (size_t r = 0; r < ranks; ++r) sum += all[r * weights_.size() + m];
  }
  control_.set_weight(sum);
}

void DelegateEngine::end_micro_step() {
  require_started();
  require_training("ds_backward");
  if (micro_ >= config().accumulation) {
    raise(DS_ERROR_STATE, "ds_backward comes after {} of {} micro-steps: ds_step must follow",
          micro_, config().accumulation);
  }
  if (config().by_tokens() && !weight_)
    raise(DS_ERROR_STATE,
          "ds_backward needs the weight of micro-step {}: ds_engine_set of micro_weight", micro_);
  if (!begun_) begin_step();
  for (ParamId p : specs_.ids()) {  // places that were viewed for nothing are the engine's again
    if (grad_streams_[p] && !has_grad_[p]) grad_streams_[p]->synchronize();
  }
  bool followed = follow({HostEvent::Kind::end, {}});
  begun_ = true;
  runtime_.guarded([&] {
    if (!followed) reduce_ready(true);
    take_weight();
  });
  ++micro_;
  begin_micro_step();
}

StepResult DelegateEngine::step() {
  require_started();
  require_training("ds_step");
  if (micro_ != config().accumulation) {
    raise(DS_ERROR_STATE, "ds_step must follow {} micro-steps, {} are done", config().accumulation,
          micro_);
  }
  for (ParamId p : leases_.ids()) {
    if (leases_[p] > 0)
      raise(DS_ERROR_STATE, "parameter '{}' is leased {} times at step", TensorName(specs_[p].name),
            leases_[p]);
  }
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
  return reason.empty() ? control_.finish() : control_.finish(reason);
}

// Of this rank: its part of the sums over ranks.
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
  return *refresh_;
}

void DelegateEngine::begin_step() {
  store_.require_refreshed();
  store_.changed();
  control_.begin_step();
}

StateStore::Owner::Gradients DelegateEngine::gradients() const {
  if (!begun_) return Gradients::none;
  return micro_ < config().accumulation ? Gradients::some : Gradients::all;
}

std::unique_ptr<Executor> DelegateEngine::executor(const Program& program) {
  return runtime_.executor(program, control_);
}

void DelegateEngine::require_idle(const char* call) {
  require_started();
  if (!begun_) return;
  raise(DS_ERROR_STATE, "{} must not be called inside a step: {} of {} micro-steps are done", call,
        micro_, config().accumulation);
}

void DelegateEngine::require_unleased(const char* call) {
  require_idle(call);
  for (ParamId p : leases_.ids()) {
    if (leases_[p] > 0)
      raise(DS_ERROR_STATE,
            "{} must not be called while parameter '{}' is leased: it has {} leases", call,
            TensorName(specs_[p].name), leases_[p]);
  }
}

void DelegateEngine::begin_change(const char* call) {
  require_unleased(call);
  runtime_.guarded([&] { forget_calls(); });
}

// Places of leases and gradients have pages only while the host holds a bucket: how many at once is
// its decision.
int64_t DelegateEngine::unbacked_bytes() const {
  int64_t bytes = 0;
  auto add = [&](BufferId id) { bytes += runtime_.placed().buffers[id].bytes(); };
  for (BucketId b : plan_.lease.ids()) {
    if (plan_.zero.buckets[b].partitioned) add(plan_.lease[b]);
    if (plan_.grads[b].exists()) add(plan_.grads[b]);
  }
  return bytes;
}

std::string DelegateEngine::print_plan() const {
  return record_ ? record_->program.print() : plan_.update.print();
}

std::vector<TierMemory> DelegateEngine::memory() const {
  MemoryPlan memory;
  for (int t = 0; t < 3; ++t) {
    memory.tiers[t].persistent = plan_.update.arenas[t].persistent;
    memory.tiers[t].transient = fragment_transient_[t] + program_bytes(t);
  }
  return memory_by_tier(plan_.zero.buffers, memory, config().memory_budget);
}

}  // namespace ds
