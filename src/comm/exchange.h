#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "comm/intent.h"
#include "ds_plugin.h"

namespace ds {

class CallbackThreads;
struct CommOptions;

// Address and size of the bytes that a rank sends to another rank or receives from it.
using Part = ds_plugin_part;

// How the parts of a round relate to each other. The kind decides how many bytes of staging memory
// each part gets.
enum class Round {
  // Every rank sends the same bytes to all other ranks.
  same,
  // All ranks send to one rank.
  one,
  // Every rank sends a different part to each other rank.
  each,
  // As `each`, but the receiver does not copy the parts; it reads them piece by piece (see()).
  seen,
};

// A rank's place in a group, and the group's place in its world. The world is the group that was
// created first; this group is the world itself or was split from it. Messages name ranks by their
// number in the world.
struct Membership {
  int rank = 0;
  // For each rank of the group, its number in the world.
  std::vector<int> world = {0};
  // The group's name; "" if the group is the world itself.
  std::string group;

  static Membership whole(int rank, int size);
  Membership subset(const std::vector<int>& members, std::string name) const;
};

// The interface that moves bytes between the ranks of a group. The collectives are written once,
// over this interface, and each transport implements it.
//
// A collective calls begin(), prepare(), round() as often as it needs, and end(), with the same
// kinds and sizes on all ranks; after an error it calls drop() in place of end(). Several sequences
// of prepare(), rounds and end() may follow one begin(). An exchange is used by one thread at a
// time, except for abort().
class Exchange {
 public:
  explicit Exchange(Membership place)
      : place_(std::move(place)),
        sends_(place_.world.size()),
        receives_(place_.world.size()),
        seen_(place_.world.size()) {}
  virtual ~Exchange() = default;
  int rank() const { return place_.rank; }
  int size() const { return static_cast<int>(place_.world.size()); }
  const Membership& place() const { return place_; }
  // Returns rank r's number in the world, by which messages name it.
  int world(int r) const { return place_.world[static_cast<size_t>(r)]; }
  // Arrays with one entry for each rank, for the parts that a round sends and receives and for the
  // pieces that see() returns. The running collective uses them.
  Part* sends() { return sends_.data(); }
  Part* receives() { return receives_.data(); }
  const void** seen() { return seen_.data(); }
  // Returns scratch memory for the running collective. It is kept for the next collective, but a
  // larger request loses its content.
  std::byte* scratch(size_t bytes) {
    if (bytes > scratch_bytes_) {
      scratch_ = std::make_unique_for_overwrite<std::byte[]>(bytes);
      scratch_bytes_ = bytes;
    }
    return scratch_.get();
  }
  virtual int local_rank() const { return rank(); }
  virtual int local_size() const { return size(); }

  // Announces what this rank is about to do. If ranks are about to do different things, they fail
  // in the first round at the latest.
  virtual void begin(const Intent& intent) = 0;
  // Prepares for rounds in which a rank receives up to `bytes` bytes in total from each other rank;
  // `bytes` is the same on all ranks. Returns the largest part that one round may move.
  virtual size_t prepare(Round kind, size_t bytes) = 0;
  // Sends sends[r] to every rank r and receives receives[r] from it, this rank included. If the
  // data of receives[r] is NULL, the bytes are not copied: see() returns them, except for this
  // rank's own part. The sent bytes must not change until all ranks have begun the next round, or
  // until end() has returned.
  virtual void round(const Part* sends, const Part* receives) = 0;
  // Returns a piece of the part that rank r sent to this rank in the last round. A piece has at
  // most piece_bytes() bytes and is valid until the next round or the next call for r.
  virtual const std::byte* see(int r, size_t offset, size_t bytes) = 0;
  virtual size_t piece_bytes() const { return SIZE_MAX; }
  // Waits until all ranks have read this rank's bytes.
  virtual void end() = 0;
  // Returns whether two ranks can exchange bytes without the others. Splitting a group needs this,
  // too.
  virtual bool meets_pairs() const { return true; }
  // Performs this rank's side of a send and its receive, with begin and end. Both ranks pass the
  // same intent; one of `send` and `receive` is empty.
  virtual void pair(const Intent& intent, int peer, Part send, Part receive) = 0;

  // If rounds run callbacks of the caller, returns the set of threads that are inside a callback;
  // such rounds may run only on a thread that is inside a ds_ call. Otherwise returns null, and
  // rounds may run on any thread.
  virtual const CallbackThreads* callback_threads() const { return nullptr; }

  // Checks on the other ranks. A rank calls this while it waits, outside of any round, for work
  // that all ranks do together, for example on their devices. Fails if the group has ended, or if a
  // rank has died or makes no progress.
  virtual void watch(const Intent& /*intent*/) {}

  // Leaves a collective after any error in it. The group ends for `reason` unless it has ended
  // already. On return, no thread of this process reads this rank's bytes any longer; another
  // process that still reads them discards them.
  virtual void drop(std::string_view reason) = 0;
  // Ends the group and throws. All ranks learn `reason`; the error names this rank, its operation
  // and, in its details, the rank `about` (-1: no rank).
  [[noreturn]] virtual void fail(const std::string& reason, int about = -1) = 0;
  virtual void abort(std::string_view reason) = 0;
  virtual void tick() = 0;
  virtual void set_timeout(int64_t ms) = 0;
  // Returns the time-out; 0 if the exchange has none of its own.
  virtual int64_t timeout_ms() const = 0;
  virtual int64_t overhead_bytes() const = 0;
  // Returns whether the ranks are threads of one process, so that an address of one rank is valid
  // on all of them.
  virtual bool one_process() const { return false; }
  // Ranks of one process call borrow() in a collective, after a round in which they have exchanged
  // the addresses of their objects. The objects must stay valid until every rank has called
  // give_back(). A rank must call give_back() even after an error, because drop() and
  // await_returns() on other ranks wait for that call.
  virtual void borrow() {}
  virtual void give_back() noexcept {}
  // Waits until no rank borrows from this rank any longer.
  virtual void await_returns() const noexcept {}
  // Returns whether ranks read large parts directly from the sender's memory, not through staging
  // memory.
  virtual bool reads_directly() const { return false; }
  // Creates the group of `members`: ranks of this group, in their new order, this rank among them.
  // Collective among the members. `name` is unique to the new group; messages call the group
  // `group`.
  virtual std::unique_ptr<Exchange> split(const std::string& name, const std::vector<int>& members,
                                          const std::string& group) = 0;

 protected:
  // Throws DS_ERROR_STATE if the calling process is a forked child of the process that created the
  // communicator: a forked child does not belong to the group.
  static void need_maker(const Intent& intent, int process);
  // Returns the beginning of an error message, for example "rank 3 in barrier 'h.3'", with the
  // group's name at the end unless the group is the world.
  std::string here(const Intent& intent) const;
  // Copies the part that this rank sends to itself in a round. `whole` is the size of the transfer
  // that the part belongs to (0: the part alone); it decides whether the copy bypasses the caches
  // (copy.h).
  void take_own(const Part* sends, const Part* receives, size_t whole) const;

 private:
  const Membership place_;
  std::vector<Part> sends_, receives_;
  std::vector<const void*> seen_;
  std::unique_ptr<std::byte[]> scratch_;
  size_t scratch_bytes_ = 0;
};

}  // namespace ds
