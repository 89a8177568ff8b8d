#pragma once
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "comm/comm_counts.h"
#include "comm/intent.h"
#include "core/base/dtype.h"
#include "core/base/json.h"
#include "core/device/group.h"
#include "ds_plugin.h"

namespace ds {

class CallbackThreads;
class CommLog;
class CommThread;
class Exchange;
class FlightRecord;
class Work;
struct CommTime;

// How the elements of several ranks are combined into one. `mean` is the sum divided by the number
// of ranks; it works on floating-point types only. For max and min, the result is NaN if any rank
// has a NaN.
enum class ReduceOp { sum, mean, max, min };

const char* reduce_op_name(ReduceOp op);

// A collective that is to be performed: its operation and its buffers, which are a list, or one
// buffer with blocks of unequal sizes. counts[i] is the count of buffer i in elements of dtype,
// with the meaning that it has in the Communicator method of the same name: if an operation has one
// block for each rank, it is the count of one block. If `blocks` is not empty, there is one buffer
// and no count: blocks[r] elements belong to rank r, and the blocks follow each other (all_gather,
// reduce_scatter, all_to_all). An all_to_all sends `blocks` and receives `out_blocks`. A broadcast
// has its data in `out`; a barrier has no buffers.
struct CommRequest {
  enum class Op {
    all_reduce,
    all_gather,
    reduce_scatter,
    all_to_all,
    broadcast,
    barrier,
    reduce,
    gather,
    scatter
  };
  Op op = Op::all_reduce;
  DType dtype = DS_DTYPE_F32;
  ReduceOp reduce = ReduceOp::sum;
  int root = 0;
  std::vector<const void*> in;
  std::vector<void*> out;
  std::vector<size_t> counts, blocks, out_blocks;

  // Throws DS_ERROR_INVALID_ARGUMENT if a group of that many ranks cannot perform the request.
  void check(int ranks) const;
};

// The host side of a collective whose data the ranks' devices move themselves. Ranks of one process
// exchange the addresses of their objects and memory, which must stay valid until all ranks have
// submitted the work that uses them, or have failed and drained that work. Ranks of different
// processes only synchronize (`bytes` is 0). A loan is compared, counted and recorded like any
// other collective.
struct Loan {
  Group::Op op = Group::Op::all_gather;
  // Number of elements, as in CommRequest.
  size_t count = 0;
  DType dtype = DS_DTYPE_F32;
  // The data that this rank sends to all others, `bytes` long; may be null if `bytes` is 0.
  const void* mine = nullptr;
  // Receives the data of all ranks, in rank order, before the first step.
  void* all = nullptr;
  size_t bytes = 0;
  // Number of steps; an empty round of the ranks separates two of them.
  int steps = 1;
  // Submits the work of one step. A rank begins a step only when all ranks have submitted the
  // previous one.
  std::function<void(int)> step;
  // Called after an error in a step, if `bytes` is not 0. Must return only when no submitted work
  // uses memory of other ranks.
  std::function<void()> drain;
};
// Returns the name of the operation in messages, in the log and in the ledger.
const char* operation_of(Group::Op op);

// A group of ranks that perform collectives together. All ranks issue the same collectives in the
// same order, on one thread at a time per rank. Every call has a label ("gather h.3") for error
// messages. Payloads are in ordinary memory of the caller, who may reuse that memory when the call
// returns.
//
// Reductions accept elements of type `wire`: f32, bf16, f16, f64, i32, i64 or u8. The 16-bit types
// are added up in f32 and the result is f32; all others are added up in their own type, integers
// wrapping around. The order of summation is a balanced binary tree in rank order, and partial sums
// keep the type of the result, so the bits do not depend on chunking, transport or timing. If input
// and output have the same type, `out` may point to the same elements in `in`; otherwise they must
// not overlap.
//
// Failure: a peer that dies, aborts, or makes no progress for timeout_ms ends every waiting and
// later call with DS_ERROR_COMM; the message names this rank, the missing rank, the operation and
// the label. Progress is measured by the peer's progress word, not by wall time, so a slow peer
// that still works is waited for. If ranks call different operations, or the same operation with
// different sizes, types or labels, they all fail with a message that names both calls.
class Communicator {
 public:
  explicit Communicator(std::unique_ptr<Exchange> exchange);
  // Creates a group that was split from `whole`. Both share one flight record, in which this group
  // is called `group`, and one thread for started collectives.
  Communicator(std::unique_ptr<Exchange> exchange, const Communicator& whole, std::string group);
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }
  // These return the index of this rank among the ranks of its host, and the number of these ranks.
  int local_rank() const;
  int local_size() const;

  // Gathers `bytes` from every rank: rank r's `in` lands at out + r * bytes, so out holds size() *
  // bytes. `in` may point to this rank's place in out.
  void all_gather(const void* in, void* out, size_t bytes, std::string_view label);
  // Like all_gather, with bytes[r] from rank r; the blocks follow each other in out.
  void all_gather_v(const void* in, void* out, std::span<const size_t> bytes,
                    std::string_view label);
  // Reduces size() * count elements over the ranks: out receives the `count` elements that begin at
  // element rank() * count of in.
  void reduce_scatter(const void* in, void* out, size_t count, DType wire, std::string_view label,
                      ReduceOp op = ReduceOp::sum);
  // Like reduce_scatter, with counts[r] elements for rank r; the blocks follow each other in `in`.
  void reduce_scatter_v(const void* in, void* out, std::span<const size_t> counts, DType wire,
                        std::string_view label, ReduceOp op = ReduceOp::sum);
  // Reduces `count` elements over the ranks; every rank receives all results.
  void all_reduce(const void* in, void* out, size_t count, DType wire, std::string_view label,
                  ReduceOp op = ReduceOp::sum);
  // Like all_reduce, but only the root receives the results; elsewhere out may be null.
  void reduce(const void* in, void* out, size_t count, DType wire, int root, std::string_view label,
              ReduceOp op = ReduceOp::sum);
  // Sends block b of `in` to rank b and receives block r of out from rank r, `bytes` each.
  void all_to_all(const void* in, void* out, size_t bytes, std::string_view label);
  // Like all_to_all, with send[r] bytes to rank r and receive[r] bytes from it; the blocks follow
  // each other. If a rank does not send the number of bytes that its receiver expects, the error
  // names both ranks.
  void all_to_all_v(const void* in, std::span<const size_t> send, void* out,
                    std::span<const size_t> receive, std::string_view label);
  void broadcast(void* data, size_t bytes, int root, std::string_view label);
  // gather: the root receives the `in` of each rank r at out + r * bytes; on other ranks out may be
  // null. scatter is the reverse: each rank r receives the root's bytes from in + r * bytes.
  void gather(const void* in, void* out, size_t bytes, int root, std::string_view label);
  void scatter(const void* in, void* out, size_t bytes, int root, std::string_view label);
  void barrier(std::string_view label);

  // These perform one collective over several buffers. The results are bit-equal to those of one
  // call per list entry, but the collective is begun only once and small buffers share rounds,
  // through at most 6 MiB of scratch memory.
  void all_reduce_coalesced(std::span<const void* const> in, std::span<void* const> out,
                            std::span<const size_t> counts, DType wire, std::string_view label,
                            ReduceOp op = ReduceOp::sum);
  void all_gather_coalesced(std::span<const void* const> in, std::span<void* const> out,
                            std::span<const size_t> bytes, std::string_view label);
  void reduce_scatter_coalesced(std::span<const void* const> in, std::span<void* const> out,
                                std::span<const size_t> counts, DType wire, std::string_view label,
                                ReduceOp op = ReduceOp::sum);
  void broadcast_coalesced(std::span<void* const> data, std::span<const size_t> bytes, int root,
                           std::string_view label);

  // Performs the collective. reduce, gather, scatter and all_to_all process the buffers of a list
  // one after the other; the other operations process them as one coalesced collective.
  void make(const CommRequest& request, std::string_view label);
  // Starts a collective on a thread that this group shares with all groups related to it by
  // split(). Started collectives run in the order of these calls, one at a time; a collective that
  // is called directly on one of these groups first waits for them. Buffers are borrowed until
  // wait() or such a direct call has returned, or until the destructor, which ends unfinished
  // collectives with an error. abort() and start() do not wait, so the buffers stay borrowed. If
  // the group has callbacks, which may run only on the caller's thread, the collective has ended
  // when this returns.
  std::shared_ptr<Work> start(CommRequest request, std::string_view label);

  // send() sends to one other rank, which must call receive() with the same number of bytes and the
  // same label. send() returns when `data` may be reused, receive() when the bytes have arrived. If
  // two ranks send to each other at the same time, their calls differ, which is an error; a longer
  // cycle of sends ends only by the time-out, and over callbacks never.
  void send(const void* data, size_t bytes, int to, std::string_view label);
  void receive(void* data, size_t bytes, int from, std::string_view label);

  // Returns the set of threads that are inside a callback of this group; the group refuses calls
  // from them. Null if the group has no callbacks.
  const CallbackThreads* callback_threads() const;

  // Collective over this group. The ranks that pass the same color (0 or more) become a group,
  // ordered by key, then by their rank in this group. A rank that passes a negative color joins no
  // group and gets nullptr. An abort of the new group ends only that group; an abort of this group
  // ends both. Over a plugin or callbacks, the two groups share one link, so whatever ends one of
  // them ends both.
  std::unique_ptr<Communicator> split(int color, int key, std::string_view label);

  // Ends the current and all later calls of every rank with DS_ERROR_COMM and this reason.
  // Threadsafe and idempotent.
  void abort(std::string_view reason);
  // Marks progress. A rank that computes for a long time between collectives must call this, as the
  // executor does.
  void tick();

  // Sets how long a peer may make no progress before that is an error, from the next collective on.
  void set_timeout(int64_t ms);
  // Returns that time, or the default of CommOptions if the exchange has no time-out of its own.
  int64_t timeout_ms() const;

  // Called while this rank waits for work that a loan has submitted. Throws if the group has ended,
  // or if a rank has died or makes no progress; otherwise, if `found` is not empty, throws with
  // `found` as the reason. The error names `operation` and `label` and ends the group.
  void watch(std::string_view operation, std::string_view label, const std::string& found = "");

  // Performs the host side of a collective whose data the ranks' devices move; see Loan.
  void make(const Loan& loan, std::string_view label);
  // Returns the interface through which the ranks of this group exchange bytes.
  const Exchange& exchange() const { return *exchange_; }

  std::map<std::string, CommCount> counts() const { return counts_.all(); }

  // Times the listed operations from now on, in this group and in groups that are split from it
  // later; an empty list means all operations. If the log has been started before, it continues
  // unchanged. All ranks must call this with the same operations between the same two collectives.
  // After every 1024 timed collectives the ranks compare their times, by a collective that counts()
  // does not include.
  void start_log(std::span<const std::string> operations = {});
  bool logging() const { return log_ != nullptr; }
  // Returns the times so far. Collective.
  std::vector<CommTime> times();

  // Returns the record of this rank's last operations in this group and in all groups that are
  // related to it by split().
  FlightRecord& flight() const { return *flight_; }

 private:
  // A call as the ranks compare it before the first round. `detail` is what they must agree on
  // besides the operation.
  struct Call {
    std::string_view operation, detail;
    size_t bytes;
    std::string_view label;
    uint64_t counts_hash = 0;
    // The other rank of a send or receive; -1 in a collective.
    int peer = -1;
    // Whether counts and the log include the call.
    bool counted = true;
  };
  // Begins the call, runs `body`, which returns the bytes received, and ends it
  // (collectives/collective.h).
  template <typename Body>
  void perform(const Call& call, Body body);
  void start(const Call& call);
  void finish(const Call& call, size_t received);
  void give_up(const std::exception& error) noexcept;
  // Compares the times of the log over the ranks, once it is full.
  void settle_log();
  // Performs a send or a receive with the rank `peer`; the part of the other direction is empty.
  void meet(std::string_view operation, std::string_view argument, int peer, ds_plugin_part give,
            ds_plugin_part take, std::string_view label);

  std::unique_ptr<Exchange> exchange_;
  const int rank_, size_;
  uint64_t sequence_ = 0;
  // Number of sends and receives with each rank. The sequence number of collectives does not
  // include them.
  std::vector<uint64_t> pairs_;
  // The intent of the running collective or, between collectives, of the last one.
  Intent intent_;
  const std::shared_ptr<FlightRecord> flight_;
  const std::shared_ptr<CommThread> thread_;
  // The group's name in the flight record.
  const std::string group_;
  // The running collective's number in the flight record.
  uint64_t flight_number_ = 0;
  // Null: nothing is timed.
  std::unique_ptr<CommLog> log_;
  // When the running collective began; set only if it is timed.
  int64_t begun_ns_ = 0;
  CommCounts counts_;
};

struct CommOptions {
  int rank = 0;
  int size = 1;
  // How long a peer may make no progress.
  int64_t timeout_ms = 300000;
  // How long creation waits for peers.
  int64_t join_ms = 60000;
  // Whether ranks read each other's memory if the system allows it.
  bool direct = true;
  // Number of cores that the ranks share; must be equal on all ranks. 0: the cores on which any
  // rank may run.
  int cores = 0;
};

// Creates or joins a group and returns when all ranks have joined; collective. Forms of url:
// - "self": one rank;
// - "threads://name": ranks are threads of this process;
// - "shm://name": processes of one host;
// - "NAME" or "NAME://ADDRESS": a plugin, such as "mpi" (the job that mpirun or srun started, on
//   any hosts) or "tcp" (comm/tcp/meeting_point.h has its addresses);
// - "env": the group that the variables of a launcher describe (environment.h);
// - "env:URL": rank and size from these variables, over URL.
// Throws DS_ERROR_INVALID_ARGUMENT, DS_ERROR_UNSUPPORTED or DS_ERROR_COMM.
std::unique_ptr<Communicator> create_communicator(std::string_view url, const CommOptions& options);

// Returns each form of url, with a description and, for plugins, whether the plugin is found.
std::vector<std::pair<std::string, std::string>> communicator_forms();

// Computes dst[i] as the reduction over r of src[r][i] in the fixed order of libds: neighbours
// first, (0+1)+(2+3), and an odd last rank is carried up. dst may be one of src if both have the
// same type.
void tree_reduce(const void* const* src, int ranks, DType wire, ReduceOp op, void* dst,
                 size_t count);

// Returns the bytes of one element of a reduction's result.
size_t sum_size(DType wire);

}  // namespace ds
