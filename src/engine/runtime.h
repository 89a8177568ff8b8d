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
#include "compile/pipeline.h"
#include "core/base/trace.h"
#include "core/device/device.h"
#include "core/device/stream.h"
#include "core/program/mesh.h"
#include "engine/arena.h"
#include "engine/options.h"
#include "engine/overhead.h"
#include "engine/step_control.h"
#include "exec/executor.h"
#include "exec/queues.h"
#include "io/async_file.h"
#include "io/file.h"
#include "kernels/kernel.h"

namespace ds {

// What the programs of an engine run on: its ranks, memory, threads, kernels, file lanes and
// executors. It knows buffers and programs, but neither parameters nor steps. One thread at a time.
//
// A failed instruction poisons it: every later guarded call throws DS_ERROR_POISONED.
class Runtime {
 public:
  // What start() takes memory for. Everything is borrowed and stays where it is: a plan that is
  // compiled anew is assigned to the same place.
  struct Placed {
    const ZeroPlan& zero;
    const Program& program;   // any with the places of all persistent buffers
    const std::string& hash;  // equal on all ranks, or start() and grow() throw on all of them
  };

  // Collective, as everything below that says so. comm is borrowed.
  Runtime(Config config, Communicator& comm, EngineOptions options, Placed placed);
  ~Runtime();
  Runtime(const Runtime&) = delete;
  Runtime& operator=(const Runtime&) = delete;

  const Config& config() const { return config_; }
  Communicator& comm() const { return comm_; }
  Mesh mesh() const { return options_.mesh.value_or(Mesh(comm_.size())); }
  // After start(): the ranks that differ from this one along the axes of a class alone, and along
  // `data`.
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
  // Memory outside the plan; complete once the engine has its programs.
  const Overhead& overhead() const { return overhead_; }
  void add_overhead(const std::string& part, int64_t bytes) { overhead_.add(part, bytes); }
  const Program& placed() const { return placed_.program; }

  // Runs body, which compiles; what it leaves in memory is measured. What it throws on one rank,
  // all throw. Collective.
  void compile(const std::function<void()>& body);
  // The same of a body that puts new programs in the place of old ones. Not collective.
  void replace_programs(const std::function<void()>& body);
  // As compile(), of a body that makes executors. Collective.
  void make_executors(const std::function<void()>& body);
  // The same of one executor more, without the other ranks.
  void make_executor_late(const std::function<void()>& body);
  // Runs end, which ends all executors: what they took is given back, what they counted stays.
  void end_executors(const std::function<void()>& end);

  // Compares plan hashes over all ranks, then takes the planned memory; a rank that cannot is an
  // error on all. unbacked: device bytes of the plan that nobody fills at once. Collective.
  void start(const MemoryPlan& memory, int64_t unbacked = 0);
  // The same for a plan with the same places and more behind them; executors are to be made again.
  void grow(const MemoryPlan& memory, int64_t unbacked = 0);
  // Transient memory of other sizes, with other contents; executors are to be made again.
  void resize_transient(const MemoryPlan& memory);

  // control gives the scalars. Program and control outlive the executor.
  std::unique_ptr<Executor> executor(const Program& program, StepControl& control);
  // Its last executor is one that ends here: it is counted no more.
  void forget_last_executor() { running_.pop_back(); }

  // Throws DS_ERROR_POISONED after a failure.
  void require_usable() const;
  bool poisoned() const { return !poison_.empty(); }
  void poison(const std::exception& error) { poison_ = error.what(); }
  // Runs body; a failure poisons and ends the group, too: the other ranks would wait for this one.
  void guarded(const std::function<void()>& body);
  // What runs from here on starts when the work that the stream has now has finished. Null:
  // nothing.
  void order_after(const StreamRef& stream);
  // Ends what the last run left in flight, and what order_after() waits for.
  void settle() const;

  // Bytes of a buffer in device or host memory, from its byte `begin` on. Nothing may be in flight
  // that touches them.
  void read(const Buffer& buffer, int64_t begin, void* out, int64_t bytes) const;
  void write(const Buffer& buffer, int64_t begin, const void* in, int64_t bytes);
  void fill(const Buffer& buffer, int64_t begin, int byte, int64_t bytes);
  // Between two buffers in memory.
  void copy(const Buffer& to, int64_t to_begin, const Buffer& from, int64_t from_begin,
            int64_t bytes);
  // The same of elements as f32, in any tier; files are read and written by whole blocks.
  void read_floats(const Buffer& buffer, int64_t element, int64_t count, float* out) const;
  void write_floats(const Buffer& buffer, int64_t element, int64_t count, const float* in);
  // Bytes of a buffer in any tier.
  void read_bytes(const Buffer& buffer, int64_t begin, int64_t bytes, uint8_t* out) const;
  void write_bytes(const Buffer& buffer, int64_t begin, int64_t bytes, const uint8_t* in);
  // Of a persistent buffer by its number.
  const Buffer& buffer(BufferId id) const { return placed_.program.buffers[id]; }
  // Where a buffer in memory is: an address of the device, which host code may hand on, but reads
  // through read(), unless shared_memory().
  std::byte* address(const Buffer& buffer) const;
  // Host code may use addresses of the device like any other.
  bool shared_memory() const { return device_->shared(); }
  // Bytes that host code may use, beside the plan.
  std::shared_ptr<Arena> host_bytes(int64_t bytes) {
    return device_->make_arena(Device::Place::host, bytes);
  }
  // The pages of a persistent device buffer go back to the system; it reads as zero again.
  void discard(BufferId id);
  // Keeps what an address of the device shows mapped: EngineMemory::hold.
  std::shared_ptr<void> hold(const void* address) const { return memory_->hold(address); }
  // Of the nvme tier.
  const File& file() const { return memory_->file(); }
  // Bytes taken in a tier; 0 before start().
  int64_t mapped(Tier tier) const { return memory_ ? memory_->mapped(tier) : 0; }

  // Counted traffic by operation: collectives, copies, file bytes.
  std::map<std::string, CommCount> ledger() const;
  // What the communication log has timed, of all groups; none unless comms_logger is on.
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
  void transfer_file(const Buffer& buffer, int64_t element, int64_t count, float* out,
                     const float* in) const;
  // Calls use(data) with bytes [begin, begin + bytes) of a buffer on a file, and writes what it
  // leaves.
  void in_file(const Buffer& buffer, int64_t begin, int64_t bytes, bool write,
               const std::function<void(std::byte*)>& use) const;

  Overhead overhead_;  // first: it measures what the others take
  Config config_;
  Communicator& comm_;
  CommGroups groups_;
  EngineOptions options_;
  Placed placed_;
  KernelRegistry kernels_;
  std::shared_ptr<Device> device_;
  bool linked_ = false;             // a library links the devices of all ranks
  std::vector<StreamRef> streams_;  // that queues wait for, or have waited for
  mutable bool ordered_ = false;    // some of them may wait still
  std::unique_ptr<EngineMemory> memory_;
  std::unique_ptr<ThreadTeam> team_;
  std::unique_ptr<RankQueues> queues_;
  std::unique_ptr<Trace> trace_;
  std::unique_ptr<IoLane> read_lane_, write_lane_;
  FileTail tail_;
  std::string poison_;
  std::vector<Executor*> running_;                // every executor made, for the ledger
  std::map<std::string, CommCount> past_copies_;  // of executors that are no more
  std::map<std::string, int> ranks_of_group_;  // by the id of a control group around this process
};

}  // namespace ds
