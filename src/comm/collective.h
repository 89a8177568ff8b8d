#pragma once
#include <algorithm>
#include <exception>
#include <string_view>

#include "comm/blocks.h"
#include "comm/communicator.h"
#include "comm/exchange.h"
#include "core/base/error.h"

namespace ds {

// One collective, or one meeting of two, of this rank: `body` makes its rounds and returns the
// bytes this rank has received. Whatever ends it early, an error of any kind, ends the group; then
// nobody reads this rank's memory any more.
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

// Refuses what only two ranks that meet can do, where ranks meet only all together.
inline void need_pairs(const Exchange& exchange, std::string_view label) {
  if (exchange.meets_pairs()) return;
  raise(DS_ERROR_UNSUPPORTED,
        "{} needs the callbacks send and receive, which this comm does not have", label);
}

struct GiveTake {
  Part give, take;
};

// Goes over [0, longest), counted in units of `unit` bytes, in rounds of one kind, at least one;
// `longest` is the same on all ranks. swap(r, first, most) -> GiveTake: what of the `most` units
// from `first` on this rank gives rank r and takes from it. after(first, most): they have been
// taken.
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

}  // namespace ds
