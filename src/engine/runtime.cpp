// Problem: programs only name buffers, and the runtime must own the resources that they run on:
// arenas of exactly the planned bytes, one scratch file and its two lanes, compute threads,
// kernels, groups of ranks.
// Invariant: no planned memory is allocated before all ranks have compared the hashes of their
// plans, and if one rank cannot allocate its part, all ranks throw, so that no rank waits for one
// that has given up. After a failed instruction the contents of memory are unknown: the runtime is
// poisoned, the groups of ranks are aborted, and every later call reports the first error. Memory
// outside the plan is measured where it is allocated (engine/overhead.h).
#include "engine/runtime.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <sstream>
#include <utility>

#include "checkpoint/agree.h"
#include "comm/comm_counts.h"
#include "comm/comm_log.h"
#include "comm/exchange.h"
#include "compile/memory_fit.h"
#include "core/base/bytes_text.h"
#include "core/base/error.h"
#include "core/base/half.h"
#include "core/base/host_memory.h"
#include "core/base/log.h"
#include "core/base/round.h"
#include "core/device/named_device.h"
#include "core/program/levels.h"
#include "core/program/mesh.h"
#include "engine/memory_nodes.h"
#include "engine/numerics.h"
#include "engine/prepare.h"
#include "engine/threads.h"
#include "exec/queues.h"
#include "io/async_file.h"
#include "kernels/cpu/kernel_facts.h"
#include "kernels/kernel.h"
#include "machine/host_topology.h"
#include "monitor/keys.h"

namespace ds {
namespace {

// Names of parts of the overhead row.
constexpr const char* kProgramsPart = "programs";
constexpr const char* kExecutorsPart = "kernels and launch tables";
constexpr const char* kLanesPart = "I/O lanes";

std::shared_ptr<Device> device_for(const Config& config, const EngineOptions& options,
                                   int local_rank) {
  std::shared_ptr<Device> device =
      options.device ? options.device() : make_device(config.device, config.tf32, local_rank);
  ensure(!options.chaos_seed || device->shared(),
         "chaos is an order on the host, not on device '{}'", device->name());
  return device;
}

// Returns whether collectives get a separate thread: if there is a core for it, or if collectives
// mostly wait for other hosts.
bool wants_comm_thread(const ZeroConfig& zero, const Communicator& comm, int threads) {
  if (!zero.overlap_comm || comm.size() == 1) return false;
  if (comm.local_size() < comm.size()) return true;
  return static_cast<int>(usable_cpus().size()) > threads * comm.local_size();
}

// Returns why the ranks cannot be linked, in one line, or "" if they can be linked. Collective.
std::string why_not_linked(Communicator& comm, const Device& device) {
  const std::vector<std::string> devices =
      gather_texts(comm, device.identity(), "devices of ranks");
  for (size_t r = 0; r < devices.size(); ++r) {
    auto other =
        std::find(devices.begin(), devices.begin() + static_cast<std::ptrdiff_t>(r), devices[r]);
    if (other != devices.begin() + static_cast<std::ptrdiff_t>(r))
      return fmt::format("ranks {} and {} share a GPU", other - devices.begin(), r);
  }
  std::string library, refusal;
  try {
    library = device.link_library();
  } catch (const Error& error) {
    refusal = error.what();
  }
  const std::vector<std::string> refusals = gather_texts(comm, refusal, "why ranks are not linked");
  for (size_t r = 0; r < refusals.size(); ++r) {
    if (!refusals[r].empty()) return fmt::format("rank {}: {}", r, refusals[r]);
  }
  const std::vector<std::string> libraries = gather_texts(comm, library, "libraries of links");
  if (size_t r = first_different(libraries); r != 0)
    return fmt::format("rank 0 has {}, rank {} has {}", libraries[0], r, libraries[r]);
  return "";
}

struct Collectives {
  CollectivesOn on = CollectivesOn::usual;
  bool linked = false;
};

// Decides where collectives run. They run on the device itself if all ranks are threads of this
// process that use the same device, or if each rank has its own device and a library links them.
// Collective.
Collectives who_collects(const ZeroConfig& zero, Communicator& comm, int threads,
                         const Device& device) {
  if (comm.exchange().one_process()) {
    std::vector<std::string> domains = gather_texts(comm, device.domain(), "devices of ranks");
    if (!domains[0].empty() && first_different(domains) == 0) return {CollectivesOn::device};
  }
  if (comm.size() > 1 && !device.identity().empty()) {
    const std::string reason = why_not_linked(comm, device);
    if (reason.empty()) return {CollectivesOn::device, true};
    if (comm.rank() == 0)
      log_line(LogLevel::warning, "collectives go through host memory, because " + reason);
  }
  return {wants_comm_thread(zero, comm, threads) ? CollectivesOn::thread : CollectivesOn::usual};
}

}  // namespace

Runtime::Runtime(Config config, Communicator& comm, EngineOptions options, const Plan& plan)
    : config_(std::move(config)),
      comm_(comm),
      groups_(comm),
      options_(std::move(options)),
      plan_(plan),
      device_(device_for(config_, options_, comm.local_rank())) {
  if (config_.comm_timeout_ms > 0) groups_.set_timeout(config_.comm_timeout_ms);
  ensure(device_->shared() || config_.separate_tiers(),
         "device '{}' has a memory of its own, which the plan for '{}' does not keep apart",
         device_->name(), config_.device);
  const Collectives collectives = who_collects(config_.zero, comm_, options_.threads, *device_);
  linked_ = collectives.linked;
  // If one rank cannot create its threads, all ranks throw.
  agree(comm_, "threads", [&] {
    overhead_.measure("threads and kernel table", [&] {
      team_ = std::make_unique<ThreadTeam>(
          options_.threads, ThreadTeam::kScratchBytes,
          cpus_of_rank(config_, comm_.local_rank(), comm_.local_size(), options_.threads));
      queues_ = std::make_unique<RankQueues>(*device_, *team_, collectives.on);
      kernels_ = built_in_kernels();
      if (options_.kernel_filter) options_.kernel_filter(kernels_);
    });
  });
  const CommsLoggerConfig& logger = config_.get<MonitorKeys>().comms_logger;
  if (logger.enabled && (logger.all || !logger.operations.empty()))
    comm_.start_log(logger.all ? std::vector<std::string>() : logger.operations);
  if (options_.machine.ranks_per_node == 0) options_.machine.ranks_per_node = ranks_per_node(comm_);
  if (config_.levels == "auto") {
    std::vector<int> cpus =
        cpus_of_rank(config_, comm_.local_rank(), comm_.local_size(), options_.threads);
    if (cpus.empty()) cpus = usable_cpus();
    options_.machine.ranks_per_memory_node = ranks_per_memory_node(
        comm_, memory_node_of(host_topology(false), cpus), options_.machine.ranks_per_node);
  }
  if (options_.trace) trace_ = std::make_unique<Trace>(comm_.rank());
}

Runtime::~Runtime() {
  // Both lanes must finish before either is destroyed, because a transfer of one lane may wait for
  // the other lane, and for queues.
  if (read_lane_) read_lane_->finish();
  if (write_lane_) write_lane_->finish();
  groups_.unlink();
}

void Runtime::compile(const std::function<void()>& body) { overhead_.measure(kProgramsPart, body); }

void Runtime::make_executors(const std::function<void()>& body) {
  agree(comm_, "kernels", [&] { make_executor_late(body); });
}

void Runtime::make_executor_late(const std::function<void()>& body) {
  overhead_.measure(kExecutorsPart, body);
}

void Runtime::end_executors(const std::function<void()>& end) {
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

void Runtime::compare_plans() {
  std::vector<std::string> all = gather_texts(comm_, plan_.hash, "plan hash");
  if (size_t r = first_different(all); r != 0) {
    raise(DS_ERROR_CONFIG, "rank 0 compiled plan {}, rank {} compiled plan {}: {}", all[0],
          RankNumber(r), all[r], first_difference());
  }
}

// Warns if ranks have processors of different kinds, which may round differently, so that the bits
// depend on which rank computes what.
void Runtime::compare_numerics() {
  // A single rank has nothing to compare, and on a GPU, computing the key would load a library only
  // to find its version.
  if (comm_.size() == 1) return;
  std::string own;
  agree(comm_, "numerics",
        [&] { own = numerics_text(numerics_of_kernels(kernels_, device_->kind())); });
  const std::vector<std::string> all = gather_texts(comm_, own, "numerics of ranks");
  const size_t r = first_different(all);
  if (r == 0 || comm_.rank() != 0) return;
  const std::string place = fmt::format("on rank {}", r);
  log_line(
      LogLevel::warning,
      fmt::format(
          "ranks compute in different ways: {}: results agree, but their bits depend on which rank "
          "computes what",
          numerics_difference({all[0], "on rank 0"}, {all[r], place})));
}

// Returns the first key of the configuration whose value differs between rank 0 and another rank,
// with both values. Collective.
std::string Runtime::first_difference() {
  std::vector<std::map<std::string, std::string>> ranks;
  for (const std::string& text : gather_texts(comm_, config_.shared_text(), "configuration")) {
    ranks.emplace_back();
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) {
      const size_t space = line.find(' ');
      ranks.back()[line.substr(0, space)] = space == line.npos ? "" : line.substr(space + 1);
    }
  }
  for (size_t r = 1; r < ranks.size(); ++r) {
    for (const auto& [key, value] : ranks[r]) ranks[0].try_emplace(key, "not set");
    for (const auto& [key, value] : ranks[0]) {
      const std::string& theirs = ranks[r].try_emplace(key, "not set").first->second;
      if (theirs != value)
        return fmt::format("{} is {} on rank 0, {} on rank {}", key, value, theirs, r);
    }
  }
  return "their models differ";
}

// The system grants mappings of any size, but kills the process when too many of their pages are
// used. So the bytes that a rank needs are compared with the memory of its machine before any large
// mapping is created.
void Runtime::require_host_memory(const MemoryPlan& memory, int64_t unbacked) const {
  const std::optional<int64_t> free = device_->free_memory();
  const int64_t elements = plan_.zero.layout.numel();
  if (free) {
    int64_t more = memory.total(Tier::device) - (memory_ ? memory_->mapped(Tier::device) : 0);
    if (more > *free) {
      raise(DS_ERROR_OUT_OF_MEMORY,
            "the plan for {} elements needs {} of device '{}', which has {} free "
            "(docs/guides/memory.md says what makes it smaller)",
            elements, bytes_text(more), device_->name(), bytes_text(*free));
    }
  }
  HostMemory has = host_memory();
  for (GroupLimit& group : has.groups) {
    const auto counted = ranks_of_group_.find(group.id);
    if (counted != ranks_of_group_.end()) group.ranks = counted->second;
  }
  const MemoryLimit limit =
      host_limit(bytes_on_host(memory, free.has_value(), unbacked), comm_.local_size(), has);
  if (!limit.holds())
    raise(DS_ERROR_OUT_OF_MEMORY, "the plan for {} elements {}", elements, limit_text(limit));
}

// Counts the ranks in each control group. A group may contain a single rank or, as in a container,
// all ranks of a machine. Collective.
void Runtime::count_groups() {
  const std::string machine = machine_identity();
  std::string own;
  for (const GroupLimit& group : host_memory().groups) own += machine + "/" + group.id + "\n";
  for (const std::string& text : gather_texts(comm_, own, "control groups of ranks")) {
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) {
      if (line.starts_with(machine + "/")) ++ranks_of_group_[line.substr(machine.size() + 1)];
    }
  }
}

void Runtime::start(const MemoryPlan& memory, int64_t unbacked) {
  planned_ = memory;
  compare_plans();
  compare_numerics();
  count_groups();
  RankGroup data = plan_.zero.mesh.data_group();
  groups_.add(data.size, data.stride);
  for (const ParamClass& c : plan_.zero.classes) {
    groups_.add(c.levels.ranks(), c.levels.stride());
    for (int level = 0; level < c.levels.depth(); ++level)
      groups_.add(c.levels.group(level).size, c.levels.group(level).stride);
  }
  if (linked_) link_devices();
  agree(comm_, "memory", [&] {
    require_host_memory(memory, unbacked);
    bool files = memory.total(Tier::nvme) > 0;
    const int threads = queues_->thread_count() + (files ? 2 : 0);
    add_known_overhead(overhead_, groups_, threads, files);
    memory_ = std::make_unique<EngineMemory>(*device_, memory, config_.zero.nvme_path,
                                             [this] { settle(); });
    if (files) overhead_.measure(kLanesPart, [&] { start_lanes(); });
  });
}

// The library that links devices allocates its memory at the first use, so this function uses and
// measures it.
void Runtime::link_devices() {
  int64_t before = 0;
  agree(comm_, "free memory", [&] { before = device_->free_memory().value_or(0); });
  groups_.link(*device_);
  groups_.try_links(*device_, *queues_->of(Queue::comm));
  agree(comm_, "memory of links", [&] {
    overhead_.add("links between devices", before - device_->free_memory().value_or(0));
  });
}

void Runtime::grow(const MemoryPlan& memory, int64_t unbacked) {
  planned_ = memory;
  compare_plans();
  agree(comm_, "memory", [&] {
    require_host_memory(memory, unbacked);
    memory_->grow(memory);
    if (memory.total(Tier::nvme) > 0 && !read_lane_)
      overhead_.measure(kLanesPart, [&] { start_lanes(); });
  });
}

void Runtime::resize_transient(std::span<const int64_t, 3> bytes) {
  settle();
  for (size_t t = 0; t < bytes.size(); ++t) planned_.tiers[t].transient = bytes[t];
  memory_->resize_transient(planned_);
}

void Runtime::start_lanes() {
  size_t block = static_cast<size_t>(config_.aio.block_size);
  read_lane_ = std::make_unique<IoLane>("read", block, config_.aio.queue_depth, trace_.get());
  write_lane_ = std::make_unique<IoLane>("write", block, config_.aio.queue_depth, trace_.get());
}

std::unique_ptr<Executor> Runtime::executor(const Program& program, StepControl& control) {
  ExecContext context;
  context.kernels = &kernels_;
  context.comm = &groups_;
  context.queues = queues_.get();
  context.memory = memory_->memory();
  context.read_lane = read_lane_.get();
  context.write_lane = write_lane_.get();
  context.tail = &tail_;
  context.scalars = &control.block();
  context.groups = &control.groups();
  context.left_out = &control.left_out();
  context.update = options_.update.get();
  context.trace = trace_.get();
  if (program.name == "step") context.before_instr = options_.before_instr;
  std::unique_ptr<Executor> made =
      options_.chaos_seed ? make_chaos_executor(program, std::move(context), *options_.chaos_seed)
                          : make_executor(program, std::move(context));
  overhead_.raise_to("running kernel", prepare_kernels(program, kernels_, *queues_));
  overhead_.raise_to("scratch of kernels", queues_->scratch_bytes());
  running_.push_back(made.get());
  return made;
}

void Runtime::require_usable() const {
  if (poisoned()) raise(DS_ERROR_POISONED, "the engine is unusable since: {}", poison_);
}

void Runtime::guarded(const std::function<void()>& body) {
  require_usable();
  try {
    body();
  } catch (const std::exception& error) {
    poison(error);
    groups_.abort(error.what());
    throw;
  }
}

void Runtime::order_after(const StreamRef& stream) {
  if (!stream) return;
  // The caller has dropped the stream if only this list still holds it.
  auto ended = [](const StreamRef& s) { return s.use_count() == 1; };
  if (std::any_of(streams_.begin(), streams_.end(), ended)) {
    // Queues may still wait for the stream.
    settle();
    std::erase_if(streams_, ended);
  }
  if (std::find(streams_.begin(), streams_.end(), stream) == streams_.end())
    streams_.push_back(stream);
  queues_->order_after(*stream);
  ordered_ = true;
}

void Runtime::settle() const {
  if (tail_.owner) tail_.owner->settle();
  if (!std::exchange(ordered_, false)) return;
  for (const DeviceQueue* queue : queues_->threads()) queue->finish();
}

std::map<std::string, CommCount> Runtime::ledger() const {
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

}  // namespace ds
