#include "engine/engine.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "core/base/error.h"
#include "core/base/hash.h"

namespace ds {

Engine::Engine(Config config, const Graph& forward, Communicator& comm, EngineOptions options)
    : config_(std::move(config)), comm_(comm), options_(std::move(options)), kernels_(built_in_kernels()) {
  plan_ = compile_plan(forward, config_, comm_.rank(), comm_.size(), options_.machine);
  if (options_.program_filter) options_.program_filter(plan_.step);
  compare_plans();
  for (const Parameter& p : plan_.graph.params) {
    names_.push_back(p.name);
    std::vector<int64_t> shape;
    for (const Dim& d : plan_.graph.type(p.value).shape.dims()) shape.push_back(d.extent);
    shapes_.push_back(std::move(shape));
  }
  norm_order_ = norm_order(plan_.zero);
  memory_ = std::make_unique<EngineMemory>(memory_plan(plan_), config_.zero.nvme_path);
  team_ = std::make_unique<ThreadTeam>(options_.threads);
  if (options_.trace) trace_ = std::make_unique<Trace>(comm_.rank());
  if (memory_plan(plan_).total(Tier::nvme) > 0) {
    size_t block = static_cast<size_t>(config_.aio.block_size);
    read_lane_ = std::make_unique<IoLane>("read", block, config_.aio.queue_depth, trace_.get());
    write_lane_ = std::make_unique<IoLane>("write", block, config_.aio.queue_depth, trace_.get());
  }
  scalars_.seed = config_.run.seed;
  build_executors();
  guarded([&] { init_->run(); });
}

Engine::~Engine() = default;

void Engine::compare_plans() {
  std::string all(32 * static_cast<size_t>(comm_.size()), ' ');
  comm_.all_gather(plan_.hash.data(), all.data(), 32, "plan hash");
  for (int r = 0; r < comm_.size(); ++r) {
    std::string theirs = all.substr(32 * static_cast<size_t>(r), 32);
    if (theirs == plan_.hash) continue;
    raise(DS_ERROR_CONFIG,
          "rank {} compiled plan {}, rank {} compiled plan {}: their configurations or models differ",
          comm_.rank(), plan_.hash, r, theirs);
  }
}

void Engine::build_executors() {
  init_ = executor(plan_.init);
  refresh_ = executor(plan_.refresh);
  step_ = executor(plan_.step);
  eval_ = executor(plan_.eval);
  if (plan_.logits >= 0) infer_ = executor(plan_.infer);
}

std::unique_ptr<Executor> Engine::executor(Program& program) {
  ExecContext context;
  context.kernels = &kernels_;
  context.comm = &comm_;
  context.team = team_.get();
  context.memory = memory_->memory();
  context.read_lane = read_lane_.get();
  context.write_lane = write_lane_.get();
  context.scalars = &scalars_;
  context.trace = trace_.get();
  context.host_call = [this](const Instr& in, std::span<const TensorView> views) { host_call(in, views); };
  if (&program == &plan_.step) context.before_instr = options_.before_instr;
  if (options_.chaos_seed) return make_chaos_executor(program, std::move(context), *options_.chaos_seed);
  return make_executor(program, std::move(context));
}

void Engine::guarded(const std::function<void()>& body) {
  if (!poison_.empty()) raise(DS_ERROR_POISONED, "the engine is unusable since: {}", poison_);
  try {
    body();
  } catch (const std::exception& error) {
    poison_ = error.what();
    throw;
  }
}

void Engine::require_idle(const char* call) const {
  if (phase_ == Phase::idle && micro_ == 0) return;
  raise(DS_ERROR_STATE, "{} must not be called between forward and step: {} of {} micro-steps are done", call,
        micro_, config_.accumulation);
}

InstrId Engine::segment_end(const std::string& name) const {
  for (const Segment& s : plan_.step.segments) {
    if (s.name == name) return s.end;
  }
  raise(DS_ERROR_INTERNAL, "program step has no segment '{}'", name);
}

std::byte* Engine::device_bytes(BufferId id) const {
  const Buffer& b = plan_.step.buffers[static_cast<size_t>(id)];
  return memory_->memory().arena[static_cast<int>(b.tier)][0] + b.offset;
}

void Engine::begin_step() {
  scalars_.train = 1;
  scalars_.skip = 0;
  scalars_.lr = learning_rate(config_, scalars_.step);
  double t = static_cast<double>(scalars_.step + 1);
  scalars_.correction1 = 1 - std::pow(config_.optimizer.beta1, t);
  scalars_.correction2 = 1 - std::pow(config_.optimizer.beta2, t);
}

StepResult Engine::train_batch(std::span<const InputView> inputs) {
  require_idle("train_batch");
  int64_t n = check_inputs(inputs, config_.accumulation);
  begin_step();
  guarded([&] {
    for (int32_t m = 0; m < config_.accumulation; ++m) step_->set_extent(m, n);
    put_inputs(inputs, 0, config_.accumulation, n);
    step_->run();
  });
  return finish_step();
}

double Engine::forward(std::span<const InputView> inputs) {
  if (phase_ == Phase::forward_done || micro_ >= config_.accumulation) {
    raise(DS_ERROR_STATE, "forward must follow {}, {} of {} micro-steps are done",
          phase_ == Phase::forward_done ? "backward" : "step", micro_, config_.accumulation);
  }
  int64_t n = check_inputs(inputs, 1);
  if (micro_ == 0) begin_step();
  guarded([&] {
    step_->set_extent(static_cast<int32_t>(micro_), n);
    put_inputs(inputs, micro_, 1, n);
    step_->run_to(segment_end(fmt::format("forward[{}]", micro_)));
  });
  phase_ = Phase::forward_done;
  float loss = 0;
  std::memcpy(&loss, device_bytes(plan_.zero.loss) + micro_ * int64_t{sizeof loss}, sizeof loss);
  return loss;
}

void Engine::backward() {
  if (phase_ != Phase::forward_done)
    raise(DS_ERROR_STATE, "backward must follow forward, got it without one");
  bool last = micro_ + 1 == config_.accumulation;
  guarded([&] {
    step_->run_to(segment_end(fmt::format("{}[{}]", last ? "backward_last" : "backward", micro_)));
  });
  phase_ = Phase::backward_done;
  ++micro_;
}

StepResult Engine::step() {
  if (phase_ != Phase::backward_done || micro_ != config_.accumulation) {
    raise(DS_ERROR_STATE, "step must follow {} micro-steps, {} are done", config_.accumulation, micro_);
  }
  guarded([&] { step_->run(); });
  phase_ = Phase::idle;
  micro_ = 0;
  return finish_step();
}

StepResult Engine::finish_step() {
  if (scalars_.skip != 0) name_bad_tensor();
  ++scalars_.step;
  return {scalars_.step, loss_, scalars_.grad_norm, scalars_.lr};
}

// Runs the step's micro-steps again with every result checked; the update is skipped, so nothing changes.
void Engine::name_bad_tensor() {
  double loss = loss_, norm = scalars_.grad_norm;
  guarded([&] {
    step_->check_results(true);
    step_->run();
  });
  std::string bad = step_->first_bad();
  step_->check_results(false);
  raise(DS_ERROR_NUMERIC,
        "step {} is skipped: loss {}, gradient norm {}; first tensor with NaN or infinity: {}", scalars_.step,
        loss, norm, bad.empty() ? "on another rank" : bad);
}

double Engine::eval_batch(std::span<const InputView> inputs) {
  require_idle("eval_batch");
  int64_t n = check_inputs(inputs, 1);
  scalars_.train = 0;
  float loss = 0;
  std::vector<float> all(static_cast<size_t>(comm_.size()));
  guarded([&] {
    eval_->set_extent(0, n);
    put_inputs(inputs, 0, 1, n);
    eval_->run();
    std::memcpy(&loss, device_bytes(plan_.eval_loss), sizeof loss);
    comm_.all_gather(&loss, all.data(), sizeof loss, "eval loss");
  });
  double sum = 0;
  for (float l : all) sum += l;
  return sum / comm_.size();
}

std::vector<float> Engine::infer(std::span<const InputView> inputs) {
  require_idle("infer");
  if (!infer_)
    raise(DS_ERROR_STATE, "infer needs a graph with a second output, got {} outputs",
          plan_.graph.outputs.size());
  int64_t n = check_inputs(inputs, 1);
  scalars_.train = 0;
  guarded([&] {
    infer_->set_extent(0, n);
    put_inputs(inputs, 0, 1, n);
    infer_->run();
  });
  const TensorType& type = plan_.graph.type(plan_.graph.outputs[1]);
  std::vector<float> out(static_cast<size_t>(type.shape.numel(n)));
  const std::byte* data = device_bytes(plan_.logits);
  for (size_t i = 0; i < out.size(); ++i) {
    if (type.dtype == DS_DTYPE_BF16) {
      out[i] = static_cast<float>(reinterpret_cast<const bf16*>(data)[i]);
    } else {
      out[i] = reinterpret_cast<const float*>(data)[i];
    }
  }
  return out;
}

std::map<std::string, CommCount> Engine::ledger() const {
  std::map<std::string, CommCount> out = comm_.counts();
  for (const Executor* e : {init_.get(), refresh_.get(), step_.get(), eval_.get(), infer_.get()}) {
    if (!e) continue;
    for (const auto& [name, count] : e->copies()) {
      out[name].calls += count.calls;
      out[name].bytes += count.bytes;
    }
  }
  if (read_lane_) out["load"].bytes = read_lane_->bytes_read();
  if (write_lane_) out["save"].bytes = write_lane_->bytes_written();
  return out;
}

std::string Engine::numerics_key() const {
  Hash128 hash;
  hash.update(plan_.graph.print());
  const OptimizerConfig& o = config_.optimizer;
  return fmt::format(
      "model {} micro_batch {} leaves {} ranks {} dtype {} reduction {} optimizer {} threads any",
      hash.hex().substr(0, 16), config_.micro_batch, config_.accumulation * comm_.size(),
      config_.reproducible ? std::string("any") : std::to_string(comm_.size()), dtype_name(config_.compute),
      config_.reduction, o.type);
}

}  // namespace ds
