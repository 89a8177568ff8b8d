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

class Blocks;
class CallbackThreads;
class CommLog;
class CommThread;
class Exchange;
class FlightRecord;
class Work;
struct CommTime;

// How elements of several ranks become one. mean: the sum divided by the ranks, of floating types
// only. A NaN of any rank is the maximum and the minimum.
enum class ReduceOp { sum, mean, max, min };

const char* reduce_op_name(ReduceOp op);

// A collective as data, over a list of buffers or over blocks of unequal size. counts[i] of buffer
// i counts elements of dtype as the call of that name does: of a reduce_scatter, gather or scatter,
// of a block. With `blocks` there is one buffer and no count: blocks[r] elements belong to rank r,
// one behind the other (all_gather, reduce_scatter, all_to_all); of an all_to_all they are sent,
// and out_blocks[r] are received. A broadcast has its data in `out`, a barrier has nothing.
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
};

// A collective that the devices of ranks do themselves: what the ranks do for it on the host. Ranks
// of one process tell the others where their objects and their memory are, which stay until all
// have submitted what uses them, or have failed and have drained it. Others only meet (bytes 0). It
// is compared, counted and recorded like any other.
struct Loan {
  Group::Op op = Group::Op::all_gather;
  size_t count = 0;  // of elements, as in CommRequest
  DType dtype = DS_DTYPE_F32;
  const void* mine = nullptr;  // what this rank tells: `bytes` of it
  void* all = nullptr;         // what all ranks have told, before the first step
  size_t bytes = 0;            // 0: nothing is told
  int steps = 1;
  std::function<void(int)>
      step;  // submits; a rank begins a step when all have ended the one before
  std::function<void()>
      drain;  // after an error in a step: returns when nothing submitted uses the others'
};
// How such a collective is called in messages, the log and the ledger.
const char* operation_of(Group::Op op);

// A group of ranks that meets in collectives. All ranks issue the same collectives in the same
// order; one thread at a time per rank. Every call carries a label ("gather h.3") for error
// messages. Payloads lie in ordinary memory of the caller and are his again when the call returns.
//
// Reductions take elements of `wire`: f32, bf16, f16, f64, i32, i64 or u8. They are made in f32 for
// the 16-bit types and come out as f32; in their own type, wrapping around, for all others. Order:
// a balanced binary tree in rank order, never rounded in between, so the bits do not depend on
// chunking, transport or timing. Where both have one type, out may be the place of the same
// elements in `in`, else they do not overlap.
//
// Failure: a peer that dies, aborts, or makes no progress for timeout_ms ends every waiting and
// later call with DS_ERROR_COMM; the message names this rank, the missing rank, operation, label.
// Progress is the peer's progress word, not wall time: a slow peer that still works is waited for.
// Ranks that call different operations, or the same with other bytes, types or labels, end alike,
// with both calls named.
class Communicator {
 public:
  explicit Communicator(std::unique_ptr<Exchange> exchange);
  // A part of `whole`: they share one record, in which `group` names this one, and one thread.
  Communicator(std::unique_ptr<Exchange> exchange, const Communicator& whole, std::string group);
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }
  // This rank among those of its host, and how many they are.
  int local_rank() const;
  int local_size() const;

  // out holds size() * bytes; rank r's `in` lands at out + r * bytes. in may be its own place in
  // out.
  void all_gather(const void* in, void* out, size_t bytes, std::string_view label);
  // The same with bytes[r] from rank r, one behind the other.
  void all_gather_v(const void* in, void* out, std::span<const size_t> bytes,
                    std::string_view label);
  // in holds size() * count elements. out = the count elements at in + rank() * count, reduced over
  // ranks.
  void reduce_scatter(const void* in, void* out, size_t count, DType wire, std::string_view label,
                      ReduceOp op = ReduceOp::sum);
  // The same with counts[r] elements for rank r, one behind the other.
  void reduce_scatter_v(const void* in, void* out, std::span<const size_t> counts, DType wire,
                        std::string_view label, ReduceOp op = ReduceOp::sum);
  // The same of all `count` elements on every rank.
  void all_reduce(const void* in, void* out, size_t count, DType wire, std::string_view label,
                  ReduceOp op = ReduceOp::sum);
  // The same at the root alone; elsewhere out may be null.
  void reduce(const void* in, void* out, size_t count, DType wire, int root, std::string_view label,
              ReduceOp op = ReduceOp::sum);
  // Block b of in goes to rank b; block r of out comes from rank r. bytes per block.
  void all_to_all(const void* in, void* out, size_t bytes, std::string_view label);
  // The same with send[r] bytes to and receive[r] bytes from rank r, one behind the other. What a
  // rank sends another must be what that one receives; a difference names both ranks.
  void all_to_all_v(const void* in, std::span<const size_t> send, void* out,
                    std::span<const size_t> receive, std::string_view label);
  void broadcast(void* data, size_t bytes, int root, std::string_view label);
  // Every rank's `in` lands at out + r * bytes of the root; elsewhere out may be null. And back:
  // scatter takes in + r * bytes of the root to out of rank r.
  void gather(const void* in, void* out, size_t bytes, int root, std::string_view label);
  void scatter(const void* in, void* out, size_t bytes, int root, std::string_view label);
  void barrier(std::string_view label);

  // One collective over several buffers, number i of each list as in a call of its own: the same
  // bits, begun once, and small ones share rounds, through up to 8 MiB of scratch.
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

  // Makes the collective. Of reduce, gather, scatter and all_to_all the buffers of a list are made
  // one after the other, of the rest as one.
  void make(const CommRequest& request, std::string_view label);
  // Starts a collective on the rank's own thread, which makes one after the other, of this group
  // and those it shares a record with. Its place in the order of collectives is that of this call:
  // every collective called directly, of these groups, first waits for what was started. Buffers
  // are borrowed until wait() has returned, or such a direct call, or the destructor, which gives
  // unfinished ones up with an error. Nothing else ends the loan: abort() and start() wait for
  // nobody. Where the group has callbacks, which run on the caller's thread alone, the collective
  // has ended when this returns.
  std::shared_ptr<Work> start(CommRequest request, std::string_view label);

  // From this rank to one other, which receives the same bytes under the same label. Both return
  // when they are there: two ranks that send to each other at once differ, which is an error; a
  // longer circle waits forever.
  void send(const void* data, size_t bytes, int to, std::string_view label);
  void receive(void* data, size_t bytes, int from, std::string_view label);

  // The threads that are inside a callback of this group, whose calls it refuses; null: it has no
  // callbacks.
  const CallbackThreads* callback_threads() const;

  // Collective over this group: the ranks that give one color (0 or more) become a group, ordered
  // by key, then by rank here. A negative color: nullptr, in no group. Its aborts are its own, an
  // abort of this group ends it too. Over a plugin or callbacks both share one link: whatever ends
  // one of them ends both.
  std::unique_ptr<Communicator> split(int color, int key, std::string_view label);

  // Ends this and all later calls of every rank with DS_ERROR_COMM and this reason. Threadsafe,
  // idempotent.
  void abort(std::string_view reason);
  // Marks progress: a rank that computes for long between collectives calls this (the executor
  // does).
  void tick();

  // How long a peer may make no progress before that is an error, from the next collective on.
  void set_timeout(int64_t ms);

  // While this rank waits for work that a loan has submitted: throws where the group has ended, a
  // rank is dead or stands still; or, if that is not so, where `found` says what is wrong. The
  // error names this collective, and ends the group.
  void watch(std::string_view operation, std::string_view label, const std::string& found = "");

  // Bytes of shared staging that this rank's share of the group takes, outside any plan.
  int64_t overhead_bytes() const;
  // Whether all ranks are threads of this process.
  bool one_process() const;
  // Makes a collective whose bytes are moved by the ranks' devices; see Loan.
  void make(const Loan& loan, std::string_view label);
  // Returns when no other rank uses what a loan of this one has told it.
  void await_returns() const noexcept;
  // Whether ranks read large payloads where they lie; else they go through the staging.
  bool reads_directly() const;

  std::map<std::string, CommCount> counts() const { return counts_.all(); }

  // From now on collectives are timed, here and in groups that are split from this one; no
  // operation means all. The same on all ranks, between the same collectives; every 1024th one then
  // compares times, which counts() leaves out.
  void start_log(std::span<const std::string> operations = {});
  bool logging() const { return log_ != nullptr; }
  // What has been timed so far. Collective.
  std::vector<CommTime> times();

  // The last 64 operations of this rank in this group, the one it was split from and those split
  // from either: a line each, with its state, times, bytes and label. Threadsafe, also while one is
  // running.
  std::string flight_record() const;
  Json flight_json() const;
  // Where that text goes as rank_N.txt when one of these groups ends by an error; "": nowhere.
  void set_flight_folder(std::string folder);
  std::string flight_folder() const;

 private:
  // What ranks compare before the first round: `detail` is what they must agree on besides the
  // operation.
  struct Call {
    std::string_view operation, detail;
    size_t bytes;
    std::string_view label;
    uint64_t counts_hash = 0;
    int peer = -1;        // of a meeting of two
    bool counted = true;  // in counts and in the log
  };
  template <typename Body>
  void perform(const Call& call, Body body);
  void start(const Call& call);
  void finish(const Call& call, size_t received);
  void give_up(const std::exception& error) noexcept;
  void settle_log();
  void check(const CommRequest& request) const;
  void check_root(int root) const;
  void gather_blocks(const void* in, void* out, const Blocks& blocks);
  // `longest`: the longest block of any rank.
  void swap_blocks(const void* in, const Blocks& from, void* out, const Blocks& to, size_t longest);
  void scatter_sums(const void* in, void* out, const Blocks& blocks, DType wire, ReduceOp op);
  // root -1: on every rank.
  void sum_to(const void* in, void* out, size_t count, DType wire, ReduceOp op, int root);
  // Reduces what all ranks have given this one to see with its own elements.
  void sum_seen(const std::byte* own, std::byte* out, size_t count, DType wire, ReduceOp op);
  size_t longest_block(std::span<const size_t> send, std::span<const size_t> receive);
  void spread(void* data, size_t bytes, int root);
  void meet(std::string_view operation, std::string_view argument, int peer, ds_plugin_part give,
            ds_plugin_part take, std::string_view label);

  std::unique_ptr<Exchange> exchange_;
  const int rank_, size_;
  uint64_t sequence_ = 0;
  std::vector<uint64_t> pairs_;  // meetings with each rank: no part of the order of collectives
  Intent intent_;                // of the running collective, else of the last one
  const std::shared_ptr<FlightRecord> flight_;
  const std::shared_ptr<CommThread> thread_;
  const std::string group_;       // its name in the record
  uint64_t flight_number_ = 0;    // of the running collective
  std::unique_ptr<CommLog> log_;  // null: nothing is timed
  int64_t begun_ns_ = 0;          // the running collective, when it is timed
  CommCounts counts_;
};

struct CommOptions {
  int rank = 0;
  int size = 1;
  int64_t timeout_ms = 300000;  // no progress of a peer for this long
  int64_t join_ms = 60000;      // waiting for peers at creation
  bool direct = true;           // read each other's memory where the system allows it
  int cores = 0;  // of all ranks together, the same on all; 0: what one of them may run on
};

// url: "self" (one rank), "threads://name" (ranks are threads of this process), "shm://name"
// (processes of one host), "NAME" or "NAME://ADDRESS" of a plugin: "mpi" (the job that mpirun or
// srun started, on any hosts), "tcp" (comm/tcp/meeting_point.h has its addresses); "env"
// (environment.h), "env:URL" (rank and size of the environment, over URL). Collective: returns when
// all ranks have joined. Throws DS_ERROR_INVALID_ARGUMENT, _UNSUPPORTED or _COMM.
std::unique_ptr<Communicator> create_communicator(std::string_view url, const CommOptions& options);

// Each form of url, with what it is and whether this build has it.
std::vector<std::pair<std::string, std::string>> communicator_forms();

// dst[i] = reduction over r of src[r][i], in the one order of libds: neighbours first (0+1)+(2+3);
// an odd last one is carried up. dst may be one of src where both have one type.
void tree_reduce(const void* const* src, int ranks, DType wire, ReduceOp op, void* dst,
                 size_t count);

// Bytes of one element of a result.
size_t sum_size(DType wire);

}  // namespace ds
