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
#include "exec/marks.h"
#include "exec/queues.h"
#include "io/async_file.h"
#include "io/file.h"
#include "io/request.h"
#include "kernels/kernel.h"

namespace ds {

// Memory of one rank. Arenas are indexed by tier (device, host) and residency, addresses of the
// first as the device has them; file extents of the nvme tier are bytes of `file`.
struct Memory {
  std::byte* arena[2][2] = {};
  const File* file = nullptr;
};

class Executor;

// Who has saves of its last run still in flight, and who ran last: executors that share memory
// share one of these.
struct FileTail {
  Executor* owner = nullptr;
  uint64_t runs = 0;  // begun, of all of them
};

// What instructions run on. All pointers are borrowed and outlive the executor.
struct ExecContext {
  const KernelRegistry* kernels = nullptr;
  CommGroups* comm = nullptr;  // with every group of the program's collectives
  RankQueues* queues = nullptr;
  Memory memory;
  IoLane* read_lane = nullptr;  // null when the program has no file instructions
  IoLane* write_lane = nullptr;
  FileTail* tail = nullptr;  // null: a run ends when its saves have ended
  // The host's: a run begins with them in the program's buffer of scalars and ends with what became
  // of them.
  StepScalars* scalars = nullptr;
  const std::vector<GroupScalars>* groups =
      nullptr;             // of updates; null: only group 0, which is in scalars
  Trace* trace = nullptr;  // null: no spans
  // Called before each instruction is issued; null outside tests. It may kill the process.
  std::function<void(size_t index)> before_instr;
};

// What messages, traces and reports call an instruction, by its last operand: "all_gather
// h.3.param".
std::string label_of(const Program& program, const Instr& instr);

// One instruction with everything resolved that does not change from step to step.
struct alignas(64) Launch {
  // What each step needs of a kernel lies in one cache line.
  const Kernel* kernel = nullptr;  // null: a collective, a move, or what a host program performs
  // The step's scalars: where its operand has them, else the program's, or for a host kernel the
  // host's.
  const StepScalars* scalars = nullptr;
  std::span<TensorView> views;  // extents of n are set by set_extent
  int inputs = 0;               // views [0, inputs) are read, the rest written
  MicroId micro;                // in round 0
  bool symbolic = false;
  bool moves = false;    // some operand has a stride
  bool model = false;    // an operation of the graph, in forward or backward
  bool by_runs = false;  // an update of some elements is launched once for each run of them
  const Instr* instr = nullptr;

  Group* group = nullptr;                // of a collective
  std::vector<const Operand*> operands;  // those of instr that are views
  std::string label;                     // label_of, for errors and trace
  CommCount copied;                      // by a copy, so far
};

// Runs one program, again and again; saves of a run may go on into the next run of the same
// program. Another executor with the same FileTail waits for them first. One thread at a time.
class Executor : protected WorkOwner {
 public:
  virtual ~Executor();
  // Tokens of a micro-step from the next run on. 0 < n <= bound.
  void set_extent(MicroId micro, int64_t n);
  // Runs what lies between position() and `end` and stops; Program::end() finishes the program and
  // rewinds. Any failure leaves the executor unusable.
  virtual void run_to(Position end) = 0;
  void run() { run_to(program_.end()); }
  // Ends the file transfers that are in flight: saves of the last run, and what a run up to an
  // instruction has begun. Call it before memory or files are read from outside.
  virtual void settle() = 0;
  Position position() const { return position_; }
  // Gives the rest of the program up: waits for what is in flight and rewinds.
  virtual void abandon() = 0;
  const Program& program() const { return program_; }
  // Whether no executor that shares its memory has run since it did: what its program keeps is
  // there.
  bool ran_last() const { return context_.tail && run_ != 0 && run_ == context_.tail->runs; }
  // With true, every floating-point result is checked; first_bad() names that of the first
  // instruction with NaN or infinity.
  void check_results(bool on);
  std::string first_bad() const;
  // Bytes moved by copies, by instruction name ("fetch", "store").
  std::map<std::string, CommCount> copies() const;

 protected:
  Executor(const Program& program, ExecContext context);
  // Gives an instruction of compute, host, comm or copy to a queue and counts what it copies.
  void give(const Position& at, DeviceQueue& queue);
  void count(const Position& at);  // alone, where a graph has given it
  static void count_bytes(Launch& launch);
  void carry_out(const Position& at, DeviceQueue& queue);
  // Sets views to the bytes and the tokens of a round, where they depend on it.
  void aim(Launch& launch, const Position& at);
  void run_kernel(const Launch& launch, const Position& at, DeviceQueue& queue);
  void check_copies(const LaunchArgs& results, DeviceQueue& queue);
  void run_by_runs(const Launch& launch, const LaunchArgs& args, DeviceQueue& queue);
  // Which collective, of how many elements.
  static std::pair<Group::Op, int64_t> collective_of(const Launch& launch);
  void collect(const Launch& launch, DeviceQueue& queue);
  IoRequest io_request(const Position& at);  // read, write
  void leave_out(const Launch& launch, DeviceQueue& queue);
  // Rethrows with the instruction's name, or with those that may be to blame for an error that
  // shows late.
  [[noreturn]] void fail(InstrId index, const std::exception& error);
  std::string name_of(const Position& at) const;
  void take_tail();      // a run begins or goes on: ends what another executor left in flight
  void send_scalars();   // then, from the host,
  void fetch_scalars();  // and back when it stops
  void leave_tail();     // for destructors: settles, errors stay with the lane

  Group* group_of(const Instr& in);
  Launch resolve(InstrId i);
  std::unique_ptr<Kernel> kernel_of(const Launch& launch) const;

  // Queues and spans know an instruction by its issue number.
  InstrId instr_of(size_t number) const {
    return issued_at(program_, static_cast<int64_t>(number)).instr;
  }
  void tell_span(size_t number, int64_t begin_ns, int64_t end_ns);

  // WorkOwner, of queues that are threads
  void worked(size_t number, int64_t begin_ns, int64_t end_ns) override;
  [[noreturn]] void failed(size_t number, const std::exception& error) override;
  void idle(size_t number) override;
  static constexpr size_t kJoin = SIZE_MAX;  // no instruction: the end of a run
  std::string unfinished() const;            // what queues have not finished; "": nothing

  const Program& program_;
  ExecContext context_;
  const int64_t data_ranks_,
      first_leaf_;  // this rank's leaf of micro-step m: first_leaf_ + m * data_ranks_
  // Views and kernels of all launches lie one behind the other, in the order in which a step needs
  // them.
  std::vector<TensorView> views_;
  std::vector<std::unique_ptr<Kernel>> kernels_;
  IdVector<InstrId, Launch> launches_;
  std::map<Communicator*, std::unique_ptr<Group>> groups_;
  std::byte* room_ = nullptr;  // of all groups' collectives, one after the other on their queue
  IdVector<MicroId, int64_t> extents_;
  Position position_;
  uint64_t run_ = 0;          // FileTail::runs of its last one
  StepScalars* const block_;  // of the program's buffer, on the device; null: it has none
  class Finite;
  std::unique_ptr<Finite> check_;  // null: results are not checked
  Marks marks_;
  std::atomic<uint64_t> progress_{0};  // instructions that queues have finished
  uint64_t shown_ = 0;                 // of them, to the other ranks
};

// Issue order, each instruction on its queue; files asynchronous on two lanes.
std::unique_ptr<Executor> make_executor(const Program& program, ExecContext context);

// The chaos device: queues run in a random legal order (a function of seed), transient memory is
// filled with 0xFF before the run and after the last use of each buffer, so that a missing wait
// changes the result.
std::unique_ptr<Executor> make_chaos_executor(const Program& program, ExecContext context,
                                              uint64_t seed);

}  // namespace ds
