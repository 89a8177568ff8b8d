#include "engine/delegate.h"

#include <algorithm>
#include <cstring>

#include "checkpoint/agree.h"
#include "core/base/error.h"
#include "core/base/hash.h"

namespace ds {

DelegateEngine::DelegateEngine(Config config, Communicator& comm, EngineOptions options)
    : EngineCore(std::move(config), comm, std::move(options)) {
  if (config_.sparse_gradients)
    raise(DS_ERROR_CONFIG, "sparse_gradients: true needs a graph, whose ids name rows; a delegate has none");
}

int32_t DelegateEngine::add_param(const std::string& name, const std::vector<int64_t>& shape,
                                  std::span<const float> data) {
  if (started_)
    raise(DS_ERROR_STATE, "parameter '{}' must be added before the first gather, gradient or step", name);
  require(!name.empty(), "name must not be empty");
  require(std::find(names_.begin(), names_.end(), name) == names_.end(), "parameter '{}' is added twice",
          name);
  std::vector<Dim> dims;
  for (int64_t d : shape) {
    require(d > 0, "parameter '{}' must have positive dimensions, got {}", name, d);
    dims.emplace_back(d);
  }
  int64_t numel = Shape(dims).numel(1);
  constexpr int64_t kMost = int64_t{1} << 40;
  require(numel <= kMost, "parameter '{}' must have at most {} elements, got {}", name, kMost, numel);
  require(data.empty() || static_cast<int64_t>(data.size()) == numel,
          "parameter '{}' has {} elements, got data of {}", name, numel, data.size());
  EngineCore::add_param(name, shape);
  specs_.push_back({name, numel});
  shapes_.emplace_back(std::move(dims));
  initial_.emplace_back(data.begin(), data.end());
  return static_cast<int32_t>(specs_.size()) - 1;
}

// What the call-by-call step needs: the largest transient memory of any fragment.
MemoryPlan DelegateEngine::fragment_memory(const DelegatePlan& plan) const {
  std::vector<Program> all{plan.init, plan.refresh, plan.update};
  for (size_t b = 0; b < plan.lease.size(); ++b) {
    all.push_back(gather_fragment(plan, config_, options_.machine, b));
    for (int32_t m = 0; plan.zero.trains(b) && m < config_.accumulation; ++m) {
      all.push_back(reduce_fragment(plan, config_, options_.machine, b, m));
    }
  }
  MemoryPlan memory;
  for (const Program& p : all) {
    for (int t = 0; t < 3; ++t) {
      memory.tiers[t].persistent = std::max(memory.tiers[t].persistent, p.arenas[t].persistent);
      memory.tiers[t].transient = std::max(memory.tiers[t].transient, p.arenas[t].transient);
    }
  }
  return memory;
}

void DelegateEngine::ensure_started() {
  if (started_) return;
  if (specs_.empty())
    raise(DS_ERROR_STATE, "a delegate engine needs a parameter before its first gather or step");
  MemoryPlan memory;
  agree(comm_, "compile", [&] {
    overhead_.measure("programs", [&] {
      plan_ = compile_delegate(config_, specs_, shapes_, comm_.rank(), comm_.size(), options_.machine);
    });
    memory = fragment_memory(plan_);
    check_budget(plan_.zero.buffers, memory, config_.memory_budget);
  });
  for (int t = 0; t < 3; ++t) fragment_transient_[t] = memory.tiers[t].transient;
  start(memory);
  started_ = true;
  std::unique_ptr<Executor> init;
  make_executors([&] {
    refresh_ = executor(plan_.refresh);
    update_ = executor(plan_.update);
    init = executor(plan_.init);
  });
  guarded([&] {
    init->run();
    for (size_t p = 0; p < specs_.size(); ++p) {
      if (initial_[p].empty()) continue;
      auto [begin, count] = local_range(static_cast<int32_t>(p));
      if (count == 0) continue;
      write_state(StateKind::master, bucket_of(static_cast<int32_t>(p)),
                  zero().layout.place(static_cast<int32_t>(p)).begin + begin, count,
                  initial_[p].data() + begin);
    }
    refresh_->run();
  });
  running_.pop_back();
  initial_.clear();
  leases_.assign(specs_.size(), 0);
  where_.assign(specs_.size(), nullptr);
  has_grad_.assign(specs_.size(), 0);
  bucket_leases_.assign(plan_.lease.size(), 0);
  for (size_t b = 0; b < plan_.lease.size(); ++b) missing_.push_back(trained(b));
  next_reduce_ = static_cast<int64_t>(plan_.lease.size()) - 1;
}

void DelegateEngine::require_started() const {
  if (started_) return;
  raise(
      DS_ERROR_STATE,
      "which elements of a parameter are this rank's is open until the first gather, gradient, step or whole "
      "read of the engine");
}

int32_t DelegateEngine::trained(size_t bucket) const {
  int32_t count = 0;
  for (const ParamPlace& p : zero().layout.buckets[bucket].params) count += !is_frozen(p.param);
  return count;
}

void DelegateEngine::recompile(const std::vector<char>& frozen) {
  DelegatePlan next;
  MemoryPlan memory;
  agree(comm_, "compile", [&] {
    overhead_.measure("programs",
                      [&] { next = recompile_delegate(plan_, config_, options_.machine, frozen); });
    memory = fragment_memory(next);
    check_budget(next.zero.buffers, memory, config_.memory_budget);
  });
  guarded([&] {
    end_all_executors();
    forget_record();
    overhead_.measure("programs", [&] { plan_ = std::exchange(next, {}); });
    for (int t = 0; t < 3; ++t) fragment_transient_[t] = memory.tiers[t].transient;
    grow(memory);
    make_all_executors();
    for (size_t b = 0; b < missing_.size(); ++b) missing_[b] = trained(b);
  });
}

void DelegateEngine::end_all_executors() {
  end_executors([&] {
    step_.reset();
    fragments_.clear();
    refresh_.reset();
    update_.reset();
  });
}

void DelegateEngine::make_all_executors() {
  make_executors([&] {
    refresh_ = executor(plan_.refresh);
    update_ = executor(plan_.update);
    if (program_) step_ = executor(*program_);
  });
}

void DelegateEngine::forget_record() {
  program_.reset();
  record_.clear();
  following_ = told_ = false;
}

void DelegateEngine::gather(std::span<const int32_t> params) {
  for (int32_t p : params) check_param(p);
  ensure_started();
  if (events_.empty()) begin_step();
  HostEvent event{HostEvent::Kind::gather, {params.begin(), params.end()}};
  bool followed = follow(event);
  guarded([&] {
    for (int32_t p : params) {
      size_t i = static_cast<size_t>(p), b = bucket_of(p);
      if (!followed && leases_[i] == 0) {
        if (bucket_leases_[b]++ == 0) gather_bucket(b);
        where_[i] = lease_address(p);
      }
      ++leases_[i];
    }
  });
}

void DelegateEngine::release(std::span<const int32_t> params) {
  for (int32_t p : params) {
    check_param(p);
    if (!started_ || leases_[static_cast<size_t>(p)] == 0) {
      raise(DS_ERROR_STATE, "parameter '{}' is released without a lease",
            specs_[static_cast<size_t>(p)].name);
    }
  }
  HostEvent event{HostEvent::Kind::release, {params.begin(), params.end()}};
  bool followed = follow(event);
  for (int32_t p : params) {
    size_t i = static_cast<size_t>(p), b = bucket_of(p);
    if (--leases_[i] > 0) continue;
    where_[i] = nullptr;
    bool own = !followed && bucket_leases_[b] > 0;
    if (own && --bucket_leases_[b] == 0 && zero().buckets[b].partitioned) {
      const Buffer& lease = placed().buffers[static_cast<size_t>(plan_.lease[b])];
      own_memory().discard(lease.offset, lease.bytes());
    }
  }
}

TensorView DelegateEngine::view(int32_t param) {
  check_param(param);
  size_t i = static_cast<size_t>(param);
  if (!started_ || leases_[i] == 0) {
    raise(DS_ERROR_STATE, "parameter '{}' must be gathered before it is viewed", specs_[i].name);
  }
  TensorView view;
  view.data = where_[i];
  view.dtype = config_.compute;
  view.rank = static_cast<int>(shapes_[i].rank());
  for (size_t d = 0; d < shapes_[i].rank(); ++d) view.dims[d] = shapes_[i][d].extent;
  return view;
}

void DelegateEngine::grad_ready(int32_t param, const void* data, DType dtype, int64_t numel) {
  check_param(param);
  ensure_started();
  size_t i = static_cast<size_t>(param);
  require(numel == specs_[i].numel, "gradient of '{}' must have {} elements, got {}", specs_[i].name,
          specs_[i].numel, numel);
  require(dtype == config_.compute || dtype == DS_DTYPE_F32, "gradient of '{}' must be {} or f32, got {}",
          specs_[i].name, dtype_name(config_.compute), dtype_name(dtype));
  if (is_frozen(param)) {
    raise(DS_ERROR_STATE, "parameter '{}' is frozen: it takes no gradient", specs_[i].name);
  }
  if (has_grad_[i])
    raise(DS_ERROR_STATE, "parameter '{}' has its gradient of this micro-step already", specs_[i].name);
  if (micro_ >= config_.accumulation) {
    raise(DS_ERROR_STATE, "gradient of '{}' comes after {} of {} micro-steps", specs_[i].name, micro_,
          config_.accumulation);
  }
  if (events_.empty()) begin_step();
  pending_grad_ = data;
  pending_dtype_ = dtype;
  has_grad_[i] = 1;
  --missing_[bucket_of(param)];
  if (follow({HostEvent::Kind::grad, {param}})) return;
  guarded([&] {
    copy_grad(grad_address(param), numel);
    reduce_ready(false);
  });
}

void DelegateEngine::end_micro_step() {
  ensure_started();
  if (micro_ >= config_.accumulation) {
    raise(DS_ERROR_STATE, "ds_backward comes after {} of {} micro-steps: ds_step must follow", micro_,
          config_.accumulation);
  }
  if (events_.empty()) begin_step();
  if (!follow({HostEvent::Kind::end, {}})) guarded([&] { reduce_ready(true); });
  ++micro_;
  std::fill(has_grad_.begin(), has_grad_.end(), 0);
  for (size_t b = 0; b < missing_.size(); ++b) {
    missing_[b] = trained(b);
  }
  next_reduce_ = static_cast<int64_t>(plan_.lease.size()) - 1;
}

StepResult DelegateEngine::step() {
  ensure_started();
  if (micro_ != config_.accumulation) {
    raise(DS_ERROR_STATE, "ds_step must follow {} micro-steps, {} are done", config_.accumulation, micro_);
  }
  for (size_t p = 0; p < leases_.size(); ++p) {
    if (leases_[p] > 0)
      raise(DS_ERROR_STATE, "parameter '{}' is leased {} times at step", specs_[p].name, leases_[p]);
  }
  guarded([&] {
    if (following_) {
      step_->run();
    } else {
      update_->run();
      record();
    }
  });
  events_.clear();
  micro_ = 0;
  following_ = step_ != nullptr;
  if (skipped()) {
    raise(DS_ERROR_NUMERIC, "step {} is skipped: gradient norm {}", scalars_.step + 1, scalars_.grad_norm);
  }
  return finish_step();
}

std::string DelegateEngine::model_text() const {
  std::string text = "delegate";
  for (size_t p = 0; p < specs_.size(); ++p) {
    text += " " + specs_[p].name + shapes_[p].text();
    if (started_ && is_frozen(static_cast<int32_t>(p))) text += " frozen";
  }
  return text;
}

Executor& DelegateEngine::refresh() {
  ensure_started();
  return *refresh_;
}

void DelegateEngine::require_idle(const char* call) {
  ensure_started();
  if (events_.empty()) return;
  raise(DS_ERROR_STATE, "{} must not be called inside a step: {} host calls are done", call, events_.size());
}

std::string DelegateEngine::print_plan() const { return step_ ? program_->print() : plan_.update.print(); }

std::string DelegateEngine::report_plan() const {
  MemoryPlan memory;
  for (int t = 0; t < 3; ++t) {
    memory.tiers[t].persistent = plan_.update.arenas[t].persistent;
    memory.tiers[t].transient = fragment_transient_[t] + program_bytes(t);
  }
  return memory_table(plan_.zero.buffers, memory, config_.memory_budget) + overhead().table();
}

}  // namespace ds
