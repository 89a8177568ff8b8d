#pragma once
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "comm/comm_counts.h"
#include "comm/comm_log.h"
#include "comm/communicator.h"
#include "comm/groups.h"
#include "compile/memory_plan.h"
#include "compile/plan.h"
#include "core/base/tier.h"
#include "core/base/trace.h"
#include "core/device/device.h"
#include "core/device/stream.h"
#include "core/program/mesh.h"
#include "core/program/program.h"
#include "engine/arena.h"
#include "engine/options.h"
#include "engine/overhead.h"
#include "engine/step_control.h"
#include "exec/executor.h"
#include "exec/queues.h"
#include "io/async_file.h"
#include "io/file.h"
#include "kernels/kernel.h"
#include "zero/zero_plan.h"

namespace ds {

// The machinery that the programs of an engine run on: ranks, memory, threads, kernels, file lanes
// and executors. It knows buffers and programs, but neither parameters nor steps. Only one thread
// at a time may use it.
//
// A failed instruction poisons the runtime: every later guarded call throws DS_ERROR_POISONED.
class Runtime {
 public:
  // Collective, like every function below that says so. `comm` and `plan` are borrowed. The plan is
  // empty until it is compiled; a later plan is assigned to the same object. All ranks must compile
  // plans of equal hash, or start() and grow() throw on all of them.
  Runtime(Config config, Communicator& comm, EngineOptions options, const Plan& plan);
  ~Runtime();
  Runtime(const Runtime&) = delete;
  Runtime& operator=(const Runtime&) = delete;

  const Config& config() const { return config_; }
  Communicator& comm() const { return comm_; }
  Mesh mesh() const { return options_.mesh.value_or(Mesh(comm_.size())); }
  // Return the communicators of the ranks that differ from this one only along the axes of a class,
  // or only along `data`. Valid after start().
  Communicator& class_ranks(const ParamClass& c) {
    return groups_.of(c.levels.ranks(), c.levels.stride());
  }
  Communicator& data_ranks() {
    return groups_.of(mesh().data_group().size, mesh().data_group().stride);
  }
  const EngineOptions& options() const { return options_; }
  const KernelRegistry& kernels() const { return kernels_; }
  const std::shared_ptr<Device>& device() const { return device_; }
  ThreadTeam& team() const { return *team_; }
  Trace* trace() const { return trace_.get(); }
  // Returns the memory outside the plan; complete once the engine has its programs.
  const Overhead& overhead() const { return overhead_; }
  void add_overhead(const std::string& part, int64_t bytes) { overhead_.add(part, bytes); }

  // Runs `body`, which compiles or replaces programs, and measures the memory that it leaves
  // allocated.
  void compile(const std::function<void()>& body);
  // Like compile(), for a body that creates executors. An error on one rank is thrown on all.
  // Collective.
  void make_executors(const std::function<void()>& body);
  // Like make_executors(), for one further executor. Not collective.
  void make_executor_late(const std::function<void()>& body);
  // Runs `end`, which destroys all executors. Their memory is freed, and their counts stay in the
  // ledger.
  void end_executors(const std::function<void()>& end);

  // Compares plan hashes over all ranks, then allocates the planned memory. If this fails on one
  // rank, all ranks throw. `unbacked` is the number of device bytes of the plan that are not backed
  // by pages at first. Collective.
  void start(const MemoryPlan& memory, int64_t unbacked = 0);
  // Allocates the memory of a new plan that has the same places and more after them. Executors must
  // be created again. Collective.
  void grow(const MemoryPlan& memory, int64_t unbacked = 0);
  // Replaces transient memory by memory of these sizes, by tier, with undefined contents. Executors
  // must be created again.
  void resize_transient(std::span<const int64_t, 3> bytes);

  // Creates an executor that reads and writes the scalars of `control`. The program and `control`
  // must outlive the executor.
  std::unique_ptr<Executor> executor(const Program& program, StepControl& control);
  // Removes the executor that was created last from the ledger; it is about to be destroyed.
  void forget_last_executor() { running_.pop_back(); }

  // Throws DS_ERROR_POISONED after a failure.
  void require_usable() const;
  bool poisoned() const { return !poison_.empty(); }
  void poison(const std::exception& error) { poison_ = error.what(); }
  // Runs `body`. A failure poisons the runtime and aborts the groups of ranks, because the other
  // ranks would wait for this one.
  void guarded(const std::function<void()>& body);
  // Makes all later work wait for the work that is on the stream now. Does nothing if `stream` is
  // null.
  void order_after(const StreamRef& stream);
  // Waits for everything that the last run has left in flight, and for the streams passed to
  // order_after().
  void settle() const;

  // Valid after start().
  EngineMemory& memory() { return *memory_; }
  const EngineMemory& memory() const { return *memory_; }
  // Returns a persistent buffer by its number.
  const Buffer& buffer(BufferId id) const { return plan_.buffers()[id]; }
  // Returns whether host code may use addresses of the device like any other address.
  bool shared_memory() const { return device_->shared(); }
  // Allocates bytes outside the plan that host code may use.
  std::shared_ptr<Arena> host_bytes(int64_t bytes) {
    return device_->make_arena(Device::Place::host, bytes);
  }
  // Returns the memory that start(), grow() or resize_transient() has allocated or failed to
  // allocate.
  const MemoryPlan& planned() const { return planned_; }
  // Returns the bytes allocated in a tier; 0 before start().
  int64_t mapped(Tier tier) const { return memory_ ? memory_->mapped(tier) : 0; }

  // Returns calls and bytes by operation: collectives, copies and file transfers.
  std::map<std::string, CommCount> ledger() const;
  // Returns the timings of the communication log, over all groups; empty unless comms_logger is on.
  // Collective.
  std::vector<CommTime> comm_times() { return groups_.times(); }

 private:
  void compare_plans();
  void compare_numerics();
  void link_devices();
  std::string first_difference();
  void count_groups();
  void require_host_memory(const MemoryPlan& memory, int64_t unbacked) const;
  void start_lanes();

  // Declared first, because it measures the memory that the other members allocate.
  Overhead overhead_;
  Config config_;
  Communicator& comm_;
  CommGroups groups_;
  EngineOptions options_;
  const Plan& plan_;
  KernelRegistry kernels_;
  std::shared_ptr<Device> device_;
  // Whether a library links the devices of all ranks.
  bool linked_ = false;
  // Streams that queues wait for, or have waited for.
  std::vector<StreamRef> streams_;
  // Whether queues may still wait for some of these streams.
  mutable bool ordered_ = false;
  std::unique_ptr<EngineMemory> memory_;
  MemoryPlan planned_;
  std::unique_ptr<ThreadTeam> team_;
  std::unique_ptr<RankQueues> queues_;
  std::unique_ptr<Trace> trace_;
  std::unique_ptr<IoLane> read_lane_, write_lane_;
  FileTail tail_;
  std::string poison_;
  // The executors that exist, for the ledger.
  std::vector<Executor*> running_;
  // Copies counted by executors that have ended.
  std::map<std::string, CommCount> past_copies_;
  // The number of this machine's ranks in each control group of this process, by the group's id.
  std::map<std::string, int> ranks_of_group_;
};

}  // namespace ds
