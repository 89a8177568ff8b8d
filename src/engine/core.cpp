#include "engine/core.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <sstream>

#include "checkpoint/agree.h"
#include "comm/comm_log.h"
#include "core/base/error.h"
#include "core/base/hash.h"
#include "core/base/host_memory.h"
#include "core/base/name.h"
#include "core/base/version.h"
#include "engine/numerics.h"
#include "engine/prepare.h"
#include "engine/threads.h"
#include "kernels/cpu/features.h"
#include "optim/optimizer.h"

namespace ds {
namespace {

// The system hands out arenas of any size and ends the process when they are filled. So what a rank needs is
// compared with what its host has before anything of that size is made.
void require_host_memory(int64_t wanted, const Layout& layout, int ranks) {
  HostMemory has = host_memory();
  if (wanted > has.machine / ranks) {
    raise(DS_ERROR_OUT_OF_MEMORY,
          "the plan for {} elements needs {} bytes on each of {} ranks of this host, which has {} bytes",
          layout.numel(), wanted, ranks, has.machine);
  }
  if (wanted > has.group) {  // which may be this rank's alone
    raise(DS_ERROR_OUT_OF_MEMORY,
          "the plan for {} elements needs {} bytes on a rank whose control group may use {} bytes",
          layout.numel(), wanted, has.group);
  }
}

}  // namespace

EngineCore::EngineCore(Config config, Communicator& comm, EngineOptions options, Keeps keeps)
    : config_(std::move(config)), comm_(comm), groups_(comm), options_(std::move(options)) {
  agree(comm_, "threads", [&] {
    overhead_.measure("threads and kernel table", [&] {
      team_ = std::make_unique<ThreadTeam>(
          options_.threads, ThreadTeam::kScratchBytes,
          cpus_of_rank(config_, comm_.local_rank(), comm_.local_size(), options_.threads));
      kernels_ = built_in_kernels();
      if (options_.kernel_filter) options_.kernel_filter(kernels_);
    });
    logged_operations(config_.comms_logger.operations);
  });
  groups_.set_timeout(config_.comm_timeout_ms);
  const CommsLoggerConfig& logger = config_.comms_logger;
  if (logger.enabled && (logger.all || !logger.operations.empty()))
    comm_.start_log(logger.all ? std::vector<std::string>() : logger.operations);
  if (options_.machine.ranks_per_node == 0) options_.machine.ranks_per_node = ranks_per_node(comm_);
  scalars_.seed = config_.run.seed;
  leaves_ = config_.accumulation * comm_.size();
  state_kinds_ = {kMasterName};
  if (keeps == Keeps::training) {
    const std::vector<std::string>& states = optimizer_of(config_.optimizer).states;
    state_kinds_.insert(state_kinds_.end(), states.begin(), states.end());
  }
  if (options_.trace) trace_ = std::make_unique<Trace>(comm_.rank());
}

EngineCore::~EngineCore() {
  // Transfers of one lane may wait for the other.
  if (read_lane_) read_lane_->finish();
  if (write_lane_) write_lane_->finish();
}

void EngineCore::add_param(std::string name, std::vector<int64_t> shape) {
  require_name("parameter", name);
  names_.push_back(std::move(name));
  shapes_.push_back(std::move(shape));
}

void EngineCore::add_params(const Graph& graph) {
  for (const Parameter& p : graph.params) {
    std::vector<int64_t> shape;
    for (const Dim& d : graph.type(p.value).shape.dims()) shape.push_back(d.extent);
    add_param(p.name, std::move(shape));
  }
}

void EngineCore::compare_plans() {
  const std::string& mine = plan_hash();
  std::string all(mine.size() * static_cast<size_t>(comm_.size()), ' ');
  comm_.all_gather(mine.data(), all.data(), mine.size(), "plan hash");
  for (int r = 0; r < comm_.size(); ++r) {
    std::string theirs = all.substr(mine.size() * static_cast<size_t>(r), mine.size());
    if (theirs == all.substr(0, mine.size())) continue;
    raise(DS_ERROR_CONFIG, "rank 0 compiled plan {}, rank {} compiled plan {}: {}",
          all.substr(0, mine.size()), r, theirs, first_difference());
  }
}

// The first key of the configuration that a rank has otherwise than rank 0. Collective.
std::string EngineCore::first_difference() {
  std::vector<std::map<std::string, std::string>> ranks;
  for (const std::string& text : gather_texts(comm_, config_.shared_text(), "configuration")) {
    ranks.emplace_back();
    std::istringstream lines(text);
    for (std::string key, value; lines >> key && std::getline(lines >> std::ws, value);)
      ranks.back()[key] = value;
  }
  for (size_t r = 1; r < ranks.size(); ++r) {
    for (const auto& [key, value] : ranks[r]) ranks[0].try_emplace(key, "not set");
    for (const auto& [key, value] : ranks[0]) {
      const std::string& theirs = ranks[r].try_emplace(key, "not set").first->second;
      if (theirs != value) return fmt::format("{} is {} on rank 0, {} on rank {}", key, value, theirs, r);
    }
  }
  return "their models differ";
}

void EngineCore::start(const MemoryPlan& memory) {
  compare_plans();
  const RankLevels& levels = zero().levels;
  for (int level = 0; level < levels.depth(); ++level)
    groups_.add(levels.group(level).size, levels.group(level).stride);
  agree(comm_, "memory", [&] {
    require_host_memory(memory.total(Tier::device) + memory.total(Tier::host) - unbacked_bytes(), layout(),
                        comm_.local_size());
    overhead_.measure("programs", [&] {
      if (zero().norms.exists()) norm_order_ = norm_order(zero());
    });
    bool files = memory.total(Tier::nvme) > 0;
    add_known_overhead(overhead_, groups_, options_.threads - 1 + (files ? 2 : 0), files);
    memory_ = std::make_unique<EngineMemory>(memory, config_.zero.nvme_path);
    if (files) overhead_.measure("I/O lanes", [&] { start_lanes(); });
  });
}

void EngineCore::grow(const MemoryPlan& memory) {
  compare_plans();
  agree(comm_, "memory", [&] {
    require_host_memory(memory.total(Tier::device) + memory.total(Tier::host) - unbacked_bytes(), layout(),
                        comm_.local_size());
    norm_order_ = norm_order(zero());
    bool files = memory.total(Tier::nvme) > 0;
    memory_->grow(memory);
    if (files && !read_lane_) overhead_.measure("I/O lanes", [&] { start_lanes(); });
  });
}

void EngineCore::end_executors(const std::function<void()>& end) {
  settle();
  for (const Executor* e : running_) {
    for (const auto& [name, count] : e->copies()) {
      past_copies_[name].calls += count.calls;
      past_copies_[name].bytes += count.bytes;
    }
  }
  running_.clear();
  overhead_.measure(kExecutorsPart, end);
}

void EngineCore::start_lanes() {
  size_t block = static_cast<size_t>(config_.aio.block_size);
  read_lane_ = std::make_unique<IoLane>("read", block, config_.aio.queue_depth, trace_.get());
  write_lane_ = std::make_unique<IoLane>("write", block, config_.aio.queue_depth, trace_.get());
}

std::unique_ptr<Executor> EngineCore::executor(const Program& program) {
  ExecContext context;
  context.kernels = &kernels_;
  context.comm = &groups_;
  context.team = team_.get();
  context.memory = memory_->memory();
  context.read_lane = read_lane_.get();
  context.write_lane = write_lane_.get();
  context.tail = &tail_;
  context.scalars = &scalars_;
  context.trace = trace_.get();
  context.host_call = [this](const Instr& in, std::span<const TensorView> views) { host_call(in, views); };
  if (program.name == "step") context.before_instr = options_.before_instr;
  std::unique_ptr<Executor> made =
      options_.chaos_seed ? make_chaos_executor(program, std::move(context), *options_.chaos_seed)
                          : make_executor(program, std::move(context));
  overhead_.raise_to("running kernel", prepare_kernels(program, kernels_, *team_));
  running_.push_back(made.get());
  return made;
}

void EngineCore::require_usable() const {
  if (!poison_.empty()) raise(DS_ERROR_POISONED, "the engine is unusable since: {}", poison_);
}

void EngineCore::make_executors(const std::function<void()>& body) {
  agree(comm_, "kernels", [&] { overhead_.measure(kExecutorsPart, body); });
}

// A failure ends the group, too: the other ranks would wait for this one.
void EngineCore::guarded(const std::function<void()>& body) {
  require_usable();
  try {
    body();
  } catch (const std::exception& error) {
    poison(error);
    comm_.abort(error.what());
    throw;
  }
}

std::byte* EngineCore::address(BufferId id) const {
  const Buffer& b = placed().buffers[id];
  return memory_->memory().arena[static_cast<int>(b.tier)][0] + b.offset;
}

void EngineCore::settle() const {
  if (tail_.owner) tail_.owner->settle();
}

void EngineCore::begin_step() {
  require_refreshed();
  forget_text();
  scalars_.train = 1;
  scalars_.skip = 0;
  bad_edits_.clear();
  scalars_.lr = learning_rate(config_, scalars_.step);
}

StepResult EngineCore::finish_step() {
  ++scalars_.step;
  last_ = {scalars_.step, loss_, scalars_.grad_norm, scalars_.lr};
  return last_;
}

void EngineCore::host_call(const Instr& in, std::span<const TensorView> views) {
  if (in.def->op == Op::clip) return clip(in, views[0]);
  if (in.def->op == Op::losses) return losses(views[0]);
  raise(DS_ERROR_INTERNAL, "this engine does not perform '{}'", in.def->name);
}

// Norm of the mean gradient: granule partials added in the order of parameters, in f64.
void EngineCore::clip(const Instr& in, const TensorView& norms) {
  const double* partial = norms.as<double>();
  double sum = 0;
  for (int64_t at : norm_order_) sum += partial[at];
  double leaves = static_cast<double>(std::max<int64_t>(leaves_, 1));
  double norm = std::sqrt(sum) / leaves;
  double max_norm = in.attrs.real("max_norm");
  double coefficient = max_norm > 0 ? std::min(1.0, max_norm / (norm + 1e-6)) : 1.0;
  scalars_.grad_norm = norm;
  scalars_.grad_scale = coefficient / leaves;
  scalars_.skip = std::isfinite(norm) && std::isfinite(loss_) ? 0 : 1;
}

// Leaves in the order of leaf numbers: micro_step * world + rank.
void EngineCore::losses(const TensorView& losses) {
  const float* all = losses.as<float>();
  int64_t micros = config_.accumulation;
  double sum = 0;
  leaves_ = 0;
  for (int64_t m = 0; m < micros; ++m) {
    for (int64_t r = 0; r < comm_.size(); ++r) {
      float loss = all[r * micros + m];
      if (std::bit_cast<uint32_t>(loss) == kNoLeaf) continue;
      sum += loss;
      ++leaves_;
    }
  }
  loss_ = sum / static_cast<double>(leaves_);  // of no leaf: NaN, which skips the update
}

std::map<std::string, CommCount> EngineCore::ledger() const {
  settle();
  std::map<std::string, CommCount> out = groups_.counts();
  auto add = [&](const std::map<std::string, CommCount>& copies) {
    for (const auto& [name, count] : copies) {
      out[name].calls += count.calls;
      out[name].bytes += count.bytes;
    }
  };
  add(past_copies_);
  for (const Executor* e : running_) add(e->copies());
  if (read_lane_) out["load"].bytes = read_lane_->bytes_read();
  if (write_lane_) out["save"].bytes = write_lane_->bytes_written();
  return out;
}

std::string EngineCore::numerics_key() const {
  bool any_ranks = config_.reproducible && zero().quantization.gradients == 0;
  NumericsParts parts = {{"model", hash_hex(model_text()).substr(0, 16)},
                         {"micro_batch", std::to_string(config_.micro_batch)},
                         {"leaves", std::to_string(config_.accumulation * comm_.size())},
                         {"ranks", any_ranks ? "any" : std::to_string(comm_.size())},
                         {"dtype", dtype_name(config_.compute)},
                         {"reduction", config_.reproducible ? "tree" : config_.reduction},
                         {"optimizer", config_.optimizer.type},
                         {"libds", library_version()}};
  for (auto& fact : numerics_of_kernels(kernels_)) parts.push_back(std::move(fact));
  if (std::string codes = zero().quantization_key(config_.zero); !codes.empty())
    parts.emplace_back("quantized", codes.substr(1));
  return numerics_text(parts);
}

}  // namespace ds
