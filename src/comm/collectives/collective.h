#pragma once
#include <algorithm>
#include <cstddef>
#include <exception>
#include <span>
#include <string_view>

#include "comm/collectives/blocks.h"
#include "comm/communicator.h"
#include "comm/exchange.h"
#include "core/base/error.h"

namespace ds {

// Performs one collective, send or receive on this rank. `body` runs its rounds and returns the
// number of bytes that this rank has received. An error of any kind ends the group; when give_up()
// has returned, no rank uses bytes of this rank's memory any longer (Exchange::drop()).
template <typename Body>
void Communicator::perform(const Call& call, Body body) {
  try {
    start(call);
    finish(call, body());
  } catch (const std::exception& error) {
    give_up(error);
    throw;
  }
}

// Throws DS_ERROR_UNSUPPORTED if two ranks cannot exchange bytes without the other ranks. Sends,
// receives and splits need this.
inline void need_pairs(const Exchange& exchange, std::string_view label) {
  if (exchange.meets_pairs()) return;
  raise(DS_ERROR_UNSUPPORTED,
        "{} needs the callbacks send and receive, which this comm does not have", label);
}

inline void check_root(int root, int ranks) {
  require(root >= 0 && root < ranks, "root must be 0 to {}, got {}", ranks - 1, root);
}

// The parts that this rank sends to another rank and receives from it in a round.
struct GiveTake {
  Part give, take;
};

// Moves the units [0, longest), each of `unit` bytes, in rounds of one kind. There is at least one
// round, so that empty collectives are compared, too. `longest` is the same on all ranks, and so is
// the number of rounds. swap(r, first, most) returns the parts for rank r among the `most` units
// from `first` on; after(first, most) is called when these units have been received.
template <typename Swap, typename After>
void in_rounds(Exchange& exchange, Round kind, size_t longest, size_t unit, Swap swap,
               After after) {
  Part *sends = exchange.sends(), *receives = exchange.receives();
  size_t most = exchange.prepare(kind, longest * unit) / unit, first = 0;
  do {
    size_t n = std::min(most, longest - first);
    for (int r = 0; r < exchange.size(); ++r) {
      GiveTake parts = swap(static_cast<size_t>(r), first, n);
      sends[r] = parts.give;
      receives[r] = parts.take;
    }
    exchange.round(sends, receives);
    after(first, n);
    first += n;
  } while (first < longest);
  exchange.end();
}

template <typename Swap>
void in_rounds(Exchange& exchange, Round kind, size_t longest, Swap swap) {
  in_rounds(exchange, kind, longest, 1, swap, [](size_t, size_t) {});
}

// The building blocks of all collectives: loops of rounds that move blocks or reduce elements. All
// ranks call the same loop, which runs the same number of rounds on each of them. A loop returns
// when no rank reads this rank's bytes any longer, and throws the errors of the exchange.
class Rounds {
 public:
  explicit Rounds(Exchange& exchange)
      : exchange_(exchange), rank_(exchange.rank()), size_(exchange.size()) {}

  // Sends this rank's block `in` to every rank; `out` receives the blocks of all ranks.
  void gather_blocks(const void* in, void* out, const Blocks& blocks);
  // Sends the blocks `from` of `in` and receives the blocks `to` of `out`. `longest` is the size of
  // the longest block of any rank.
  void swap_blocks(const void* in, const Blocks& from, void* out, const Blocks& to, size_t longest);
  // Exchanges the sizes of an all_to_all_v in bytes, fails if a sender and its receiver disagree,
  // and returns the size of the longest block of any rank.
  size_t longest_block(std::span<const size_t> send, std::span<const size_t> receive);
  // Reduces over all ranks. `in` has a block for each rank, in elements of type `wire`; `out`
  // receives the results for this rank's block.
  void scatter_sums(const void* in, void* out, const Blocks& blocks, DType wire, ReduceOp op);
  // Reduces `count` elements to rank `root`, or to every rank if root is -1.
  void sum_to(const void* in, void* out, size_t count, DType wire, ReduceOp op, int root);
  // Sends the root's bytes to every rank.
  void spread(void* data, size_t bytes, int root);
  // Runs one round without bytes, which ends when every rank has reached it.
  void barrier() {
    in_rounds(exchange_, Round::same, 0, [](size_t, size_t, size_t) { return GiveTake{}; });
  }

 private:
  // Reduces the elements that the other ranks have sent to this rank in the last round
  // (Exchange::see()), together with `own`.
  void sum_seen(const std::byte* own, std::byte* out, size_t count, DType wire, ReduceOp op);

  Exchange& exchange_;
  const int rank_, size_;
};

}  // namespace ds
