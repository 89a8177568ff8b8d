#pragma once
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "comm/comm_counts.h"
#include "comm/communicator.h"
#include "comm/groups.h"
#include "core/base/group_scalars.h"
#include "core/base/trace.h"
#include "core/device/device.h"
#include "core/device/group.h"
#include "core/device/view.h"
#include "core/program/program.h"
#include "exec/issue_number.h"
#include "exec/left_out.h"
#include "exec/marks.h"
#include "exec/queues.h"
#include "io/async_file.h"
#include "io/file.h"
#include "io/request.h"
#include "kernels/host_update.h"
#include "kernels/kernel.h"

namespace ds {

// The memory of one rank. Arenas are indexed by tier (device, host) and residency; arenas of the
// device tier have addresses of the device. Buffers of the nvme tier are extents of `file`.
struct Memory {
  std::byte* arena[2][2] = {};
  const File* file = nullptr;
};

class Executor;

// State that the executors with the same memory share: which of them may still have saves of its
// last run in flight, and which ran last.
struct FileTail {
  // The executor that ran last, whose saves may be in flight. Null if no executor has run, or if
  // that executor has been destroyed.
  Executor* owner = nullptr;
  // The number of calls of run_to() of all executors.
  uint64_t runs = 0;
};

// Everything that an executor needs to run instructions. All pointers are borrowed and must outlive
// the executor.
struct ExecContext {
  const KernelRegistry* kernels = nullptr;
  // The groups of this rank, which must include every group that the program's collectives use.
  CommGroups* comm = nullptr;
  RankQueues* queues = nullptr;
  Memory memory;
  // The lanes for file transfers. Null if the program has no file instructions.
  IoLane* read_lane = nullptr;
  IoLane* write_lane = nullptr;
  // If null, a run ends only when its saves have finished.
  FileTail* tail = nullptr;
  // The host's scalars. If the program has a buffer of scalars, each run_to() first copies the
  // host's scalars into the buffer and finally copies the buffer back.
  StepScalars* scalars = nullptr;
  // The scalars of parameter groups, for updates. Null if there is only group 0, whose scalars are
  // in `scalars`.
  const std::vector<GroupScalars>* groups = nullptr;
  // The parameters that updates leave out. Null if no run of elements is ever left out.
  const LeftOut* left_out = nullptr;
  // The host's update, for instruction `callback`. Null if no function of the host updates.
  const HostUpdate* update = nullptr;
  // If null, nothing is traced.
  Trace* trace = nullptr;
  // For tests, called before each instruction that takes part in its micro-step is issued; the call
  // may end the process. Empty outside tests.
  std::function<void(size_t index)> before_instr;
};

// Returns the label of an instruction in messages, traces and reports: its name and its last
// operand, such as "all_gather h.3.param".
std::string label_of(const Program& program, const Instr& instr);

// One instruction, with everything resolved that does not change from step to step.
struct alignas(64) Launch {
  // The members from here to `instr` are the members that each step needs for a kernel, in one
  // cache line. The kernel is null for a collective, a copy, a file transfer or an instruction that
  // a delegate host performs.
  const Kernel* kernel = nullptr;
  // The scalars that a kernel reads: its operand of scalars, if it has one. Otherwise a kernel on
  // the host queue reads the host's scalars, and other kernels read the program's buffer of
  // scalars.
  const StepScalars* scalars = nullptr;
  // Views of the operands. aim() sets the extents and addresses that change.
  std::span<TensorView> views;
  // Views [0, inputs) are read; later views are written.
  int inputs = 0;
  // The micro-step of the instruction in round 0.
  MicroId micro;
  // Whether the shape of some operand depends on n.
  bool symbolic = false;
  // Whether some operand has a stride, so that its address depends on the round.
  bool moves = false;
  // Whether this is an operation of the graph on the compute queue, in forward or backward. A rank
  // without data does not run these.
  bool model = false;
  // Whether this is an update that is launched once for each run of elements.
  bool by_runs = false;
  const Instr* instr = nullptr;

  // The group of a collective; otherwise null.
  Group* group = nullptr;
  // The operands of `instr` that have views, in the order of the views.
  std::vector<const Operand*> operands;
  // The result of label_of(), for errors and traces.
  std::string label;
  // The calls and bytes so far, if this is a copy.
  CommCount copied;
};

// An executor of one program, which may run repeatedly. Saves of a run may continue during the next
// run of the same program; another executor with the same FileTail first waits for them. Use it on
// one thread at a time.
class Executor : protected WorkOwner {
 public:
  virtual ~Executor();
  // Sets the number of tokens of a micro-step, 0 < n <= bound, from the next run on.
  void set_extent(MicroId micro, int64_t n);
  // Runs the instructions from position() up to, but not including, `end`. If `end` is
  // Program::end(), the run is complete, and position() returns to the beginning. After an error
  // the executor is unusable.
  virtual void run_to(Position end) = 0;
  void run() { run_to(program_.end()); }
  // Waits for the file transfers that are in flight: saves of the last run, and transfers of a run
  // that has stopped before its end. Call it before other code reads the memory or the file.
  virtual void settle() = 0;
  Position position() const { return position_; }
  // Abandons the rest of the program: waits for the file transfers in flight, and returns
  // position() to the beginning.
  virtual void abandon() = 0;
  const Program& program() const { return program_; }
  // Returns whether this executor was the last to run among the executors that share its memory. If
  // so, the contents of its program's kept buffers are intact.
  bool ran_last() const { return context_.tail && run_ != 0 && run_ == context_.tail->runs; }
  // Turns checks of floating-point results on or off. first_bad() returns the name of the first
  // checked result, in issue order, that has a NaN or infinity, or "" if none has.
  void check_results(bool on);
  std::string first_bad() const;
  // Returns calls and bytes of the copies so far, by instruction name ("fetch", "store").
  std::map<std::string, CommCount> copies() const;

 protected:
  Executor(const Program& program, ExecContext context);
  // Submits an instruction (not a file transfer) to a queue, and counts its bytes if it is a copy.
  void give(const Position& at, DeviceQueue& queue);
  // Counts the bytes of a copy that a graph has already submitted.
  void count(const Position& at);
  static void count_bytes(Launch& launch);
  // Submits an instruction to a queue: a kernel, a collective, a copy, or nothing.
  void carry_out(const Position& at, DeviceQueue& queue);
  // Sets the extents of views that depend on n, and the addresses of views that depend on the
  // round.
  void aim(Launch& launch, const Position& at);
  void run_kernel(const Launch& launch, const Position& at, DeviceQueue& queue);
  // Checks the results of a kernel on a queue that runs no host code, after copying them to the
  // host.
  void check_copies(const LaunchArgs& results, DeviceQueue& queue);
  // Launches an update once for each run of elements.
  void run_by_runs(const Launch& launch, const LaunchArgs& args, DeviceQueue& queue);
  // Returns the operation and the number of elements of a collective, as Group::run() expects them.
  static std::pair<Group::Op, int64_t> collective_of(const Launch& launch);
  // Submits a collective through its group.
  void collect(const Launch& launch, DeviceQueue& queue);
  // Returns the request to a lane for a read or a write.
  IoRequest io_request(const Position& at);
  // On a rank without data, fills the results of an operation of the model with zeros, and losses
  // with kNoLeaf, instead of running the operation.
  void leave_out(const Launch& launch, DeviceQueue& queue);
  // Throws an error again with the name of the instruction or, for a fault that the device reports
  // late, of the instructions that may have caused it.
  [[noreturn]] void fail(InstrId index, const std::exception& error);
  std::string name_of(const Position& at) const;
  // Makes this executor the owner of the FileTail, after waiting for the transfers that another
  // executor has left in flight.
  void take_tail();
  // Copies the host's scalars into the program's buffer, if there is one.
  void send_scalars();
  // Copies the program's buffer of scalars, if there is one, back to the host's scalars.
  void fetch_scalars();
  // If this executor owns the FileTail, settles and gives up the ownership. For destructors, so
  // errors are logged instead of thrown.
  void leave_tail();

  // Returns the group of a collective; creates it on its first use.
  Group* group_of(const Instr& in);
  // Returns the launch of an instruction, without its kernel.
  Launch resolve(InstrId i);
  // Creates the kernel of a launch, from the device or from the registry.
  std::unique_ptr<Kernel> kernel_of(const Launch& launch) const;

  // Returns the instruction of an issue number. Queues and spans refer to instructions by these
  // numbers.
  InstrId instr_of(size_t number) const {
    return issued_at(program_, static_cast<int64_t>(number)).instr;
  }
  // Adds the span of an instruction to the trace.
  void tell_span(size_t number, int64_t begin_ns, int64_t end_ns);

  // The callbacks of WorkOwner, from queues that are threads.
  void worked(size_t number, int64_t begin_ns, int64_t end_ns) override;
  [[noreturn]] void failed(size_t number, const std::exception& error) override;
  void idle(size_t number) override;
  // Used in place of an issue number for the join at the end of a run, which is not an instruction.
  static constexpr size_t kJoin = SIZE_MAX;
  // Returns the names of the instructions that queues may not have finished, or "" if all have
  // finished.
  std::string unfinished() const;

  const Program& program_;
  ExecContext context_;
  // This rank's leaf of micro-step m is first_leaf_ + m * data_ranks_.
  const int64_t data_ranks_, first_leaf_;
  // The views and the kernels of all launches, in the order in which a step uses them.
  std::vector<TensorView> views_;
  std::vector<std::unique_ptr<Kernel>> kernels_;
  IdVector<InstrId, Launch> launches_;
  std::map<Communicator*, std::unique_ptr<Group>> groups_;
  // Scratch memory of the collectives. All groups share it, because collectives run one after the
  // other on their queue.
  std::byte* room_ = nullptr;
  // The number of tokens of each micro-step.
  IdVector<MicroId, int64_t> extents_;
  Position position_;
  // FileTail::runs at the last run of this executor, or 0 if it has not run.
  uint64_t run_ = 0;
  // The program's buffer of scalars on the device. Null if the program has none, in which case
  // kernels read the host's scalars.
  StepScalars* const block_;
  class Finite;
  // Null if results are not checked.
  std::unique_ptr<Finite> check_;
  Marks marks_;
  // The number of tasks that queues have reported as finished.
  std::atomic<uint64_t> progress_{0};
  // The value of progress_ at the last report to the other ranks.
  uint64_t shown_ = 0;
};

// Creates an executor that issues instructions in issue order, each to its queue, and file
// transfers to two asynchronous lanes.
std::unique_ptr<Executor> make_executor(const Program& program, ExecContext context);

// Creates a chaos executor, which runs the queues in a random legal order that depends on `seed`
// and the rank. It fills transient memory with 0xFF before the run and after the last use of each
// buffer, so that a missing wait changes the result.
std::unique_ptr<Executor> make_chaos_executor(const Program& program, ExecContext context,
                                              uint64_t seed);

}  // namespace ds
