#pragma once
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include "core/base/dtype.h"

namespace ds {

inline constexpr int kMaxRanks = 64;  // of a group

// What a communicator counted: (operation, group) -> calls and payload bytes (bytes a rank receives from
// others).
struct CommCount {
  int64_t calls = 0;
  int64_t bytes = 0;
};

// A group of ranks that meets in collectives. All ranks issue the same collectives in the same order; one
// thread at a time per rank. Every call carries a label ("gather h.3") for error messages.
//
// Failure: a peer that dies, aborts, or makes no progress for timeout_ms ends every waiting and later call
// with DS_ERROR_COMM; the message names this rank, the missing rank, operation, label. Progress is the peer's
// progress word, not wall time: a slow peer that still works is waited for.
class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  // This rank among those of its host, and how many they are.
  virtual int local_rank() const { return rank(); }
  virtual int local_size() const { return size(); }

  // out holds size() * bytes; rank r's `in` lands at out + r * bytes. in may be its own place in out.
  virtual void all_gather(const void* in, void* out, size_t bytes, std::string_view label) = 0;
  // in holds size() * count elements of `wire` (f32, bf16, f64). out = the count elements at in + rank() *
  // count, summed over ranks in f32 (f64 for f64): a balanced binary tree in rank order, never rounded in
  // between, so the bits do not depend on chunking, transport or timing. out is f32 (f64 for f64) and must
  // not overlap in.
  virtual void reduce_scatter(const void* in, void* out, size_t count, DType wire,
                              std::string_view label) = 0;
  // The same sum of all `count` elements on every rank. out may be in where both have one type (f32, f64).
  virtual void all_reduce(const void* in, void* out, size_t count, DType wire, std::string_view label) = 0;
  // Block b of in goes to rank b; block r of out comes from rank r. bytes per block.
  virtual void all_to_all(const void* in, void* out, size_t bytes, std::string_view label) = 0;
  virtual void broadcast(void* data, size_t bytes, int root, std::string_view label) = 0;
  virtual void barrier(std::string_view label) = 0;
  // Ends this and all later calls of every rank with DS_ERROR_COMM and this reason. Threadsafe, idempotent.
  virtual void abort(std::string_view reason) = 0;
  // Marks progress: a rank that computes for long between collectives calls this (the executor does).
  virtual void tick() = 0;

  // How long a peer may make no progress before that is an error, from the next collective on.
  virtual void set_timeout(int64_t /*ms*/) {}

  // Bytes of shared staging that this rank's share of the group takes, outside any plan.
  virtual int64_t overhead_bytes() const { return 0; }

  std::map<std::string, CommCount> counts() const;  // keyed by operation name

 protected:
  void count(std::string_view operation, int64_t bytes);

 private:
  mutable std::mutex mutex_;
  std::map<std::string, CommCount> counts_;
};

struct CommOptions {
  int rank = 0;
  int size = 1;
  int64_t timeout_ms = 300000;  // no progress of a peer for this long
  int64_t join_ms = 60000;      // waiting for peers at creation
};

// url: "self" (one rank), "threads://name" (ranks are threads of this process), "shm://name" (processes of
// one host), "mpi" (the job that mpirun or srun started, on any hosts; a plugin), "env" (RANK, WORLD_SIZE,
// DS_COMM_URL as set by `libds launch`; without them "mpi" where mpirun has started this process with others;
// else "self"). Collective: returns when all ranks have joined. Throws DS_ERROR_INVALID_ARGUMENT,
// _UNSUPPORTED or _COMM.
std::unique_ptr<Communicator> create_communicator(std::string_view url, const CommOptions& options);

// A line for each form of url and whether this build has it.
std::string communicator_report();

// dst[i] = tree sum over r of src[r][i], the one summation order of libds: neighbours first (0+1)+(2+3); an
// odd last one is carried up. f32 sums for f32 and bf16, f64 for f64.
void tree_sum(const void* const* src, int ranks, DType wire, void* dst, size_t count);

}  // namespace ds
