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

// Bytes of one rank: where and how many.
using Part = ds_plugin_part;

// What a round's parts are.
enum class Round {
  same,  // a rank gives every other rank the same bytes
  one,   // all give to one rank
  each,  // each its own
  seen,  // each its own, which are looked at piece by piece
};

// A rank's place in a group, and the group's in its world: the one that was created, of which this
// is all or a part. Messages name ranks by their number in the world.
struct Membership {
  int rank = 0;
  std::vector<int> world = {0};  // the number of each rank
  std::string group;             // "": the world itself

  static Membership whole(int rank, int size);
  Membership subset(const std::vector<int>& members, std::string name) const;
};

// How the ranks of a group reach each other's bytes: the collectives are written once, over this. A
// collective is begin, prepare, rounds, end, the same on all ranks, or drop after an error; rounds
// with their prepare and end may follow each other under one begin. One thread at a time, except
// abort.
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
  // The number of rank r in messages.
  int world(int r) const { return place_.world[static_cast<size_t>(r)]; }
  // Room for what a round gives each rank and takes from it, and for what is seen of each: of the
  // collective that runs, one after the other.
  Part* sends() { return sends_.data(); }
  Part* receives() { return receives_.data(); }
  const void** seen() { return seen_.data(); }
  // Memory for a collective's own use, kept for the next one; what it held may be lost.
  std::byte* scratch(size_t bytes) {
    if (bytes > scratch_bytes_) {
      scratch_ = std::make_unique_for_overwrite<std::byte[]>(bytes);
      scratch_bytes_ = bytes;
    }
    return scratch_.get();
  }
  virtual int local_rank() const { return rank(); }
  virtual int local_size() const { return size(); }

  // Says what this rank is about to do. Ranks that differ learn it at the latest in the first
  // round.
  virtual void begin(const Intent& intent) = 0;
  // A rank takes up to `bytes` from each other one in the following rounds; the same on all ranks.
  // Returns the most that a part of such a round may have.
  virtual size_t prepare(Round kind, size_t bytes) = 0;
  // Gives sends[r] to and takes receives[r] from every rank r, itself too. What is taken from
  // others with data NULL is there to be seen, from itself nothing. Sent bytes do not change until
  // all ranks have begun the next round, or until the end.
  virtual void round(const Part* sends, const Part* receives) = 0;
  // Part of what rank r gave this one in the last round, at most piece_bytes(); valid until the
  // next round or look at r.
  virtual const std::byte* see(int r, size_t offset, size_t bytes) = 0;
  virtual size_t piece_bytes() const { return SIZE_MAX; }
  // All ranks are done with this one's bytes.
  virtual void end() = 0;
  // Whether two ranks can meet alone, which groups of a split need, too.
  virtual bool meets_pairs() const { return true; }
  // The whole of a meeting of two: the same intent on both, one of send and receive empty.
  virtual void pair(const Intent& intent, int peer, Part send, Part receive) = 0;

  // Where rounds run callbacks of the caller, who gets them on the thread that is inside a call and
  // on no other: the threads that are inside one. Null: rounds may be made on any thread.
  virtual const CallbackThreads* callback_threads() const { return nullptr; }

  // While this rank waits, outside of any round, for what all ranks do together in another way:
  // fails where the group has ended, or where a rank is dead or stands still.
  virtual void watch(const Intent& /*intent*/) {}

  // This rank leaves what it has begun, after any error: the group ends for `reason`, unless it has
  // ended, and on return nobody reads this rank's bytes any more.
  virtual void drop(std::string_view reason) = 0;
  // Ends the group: `reason` reaches all ranks, the error names this rank and what it was about,
  // and has `about` as the rank that it is about; -1: none.
  [[noreturn]] virtual void fail(const std::string& reason, int about = -1) = 0;
  virtual void abort(std::string_view reason) = 0;
  virtual void tick() = 0;
  virtual void set_timeout(int64_t ms) = 0;
  virtual int64_t overhead_bytes() const = 0;
  // Whether the ranks are threads of this process: what is an address to one of them is one to all.
  virtual bool one_process() const { return false; }
  // Of ranks of one process, in a collective and behind a round in which each told the others where
  // its objects are. They stay until give_back(), which comes whatever happens: a rank that drops
  // this collective waits for it, and so does await_returns().
  virtual void borrow() {}
  virtual void give_back() noexcept {}
  // Returns when nobody has borrowed from this rank.
  virtual void await_returns() const noexcept {}
  // Whether large parts can be read where they lie, not only through staging.
  virtual bool reads_directly() const { return false; }
  // The group of `members` (ranks of this one in their new order), of which this rank is one;
  // collective among them. `name` is theirs alone, messages call them `group`.
  virtual std::unique_ptr<Exchange> split(const std::string& name, const std::vector<int>& members,
                                          const std::string& group) = 0;

 protected:
  // Refuses a call in a child of the process that made the communicator, which has no part in the
  // group.
  static void need_maker(const Intent& intent, int process);
  // "rank 3 in barrier 'h.3'", with the name of a part.
  std::string here(const Intent& intent) const;
  // This rank's own part of a round, in a collective in which a rank takes up to `whole` bytes.
  void take_own(const Part* sends, const Part* receives, size_t whole) const;

 private:
  const Membership place_;
  std::vector<Part> sends_, receives_;
  std::vector<const void*> seen_;
  std::unique_ptr<std::byte[]> scratch_;
  size_t scratch_bytes_ = 0;
};

}  // namespace ds
