#pragma once
#include <cstdint>
#include <vector>

#include "core/program/program.h"

namespace ds {

// The issue order of one run in which a repeated stretch is written out in its first two rounds and
// its last.
//
// Whoever checks or orders accesses looks at these instead of at every round. That is enough: every
// round has the same instructions on the same bytes, or on bytes that no other round touches
// (operands with a stride). So whatever an access of round r conflicts with lies in round r, in
// round r - 1, in front of the repeated stretch or behind it. Rounds 0 and 1 have every such pair,
// and what orders a pair of rounds 0 and 1 (queues, and waits for the same round or the one before)
// orders the pair of rounds r - 1 and r in the same way. The last round has what meets the
// instructions behind.
class ShortRun {
 public:
  explicit ShortRun(const Program& program);

  // Entries are numbered from 0 in issue order.
  int32_t size() const { return outside_ + copies() * length_; }
  int copies() const { return static_cast<int>(rounds_.size()); }
  struct Entry {
    InstrId instr;
    int copy = 0;  // of the repeated stretch; 0 outside
    int32_t round = 0;
  };
  Entry at(int32_t number) const;
  // The entry of an instruction; outside the repeated stretch it has one for all copies.
  int32_t number(InstrId instr, int copy) const;
  // What the wait of an entry waits for: an entry of this run, or of the one before when the wait
  // says so. -1: nothing, in a round that has none before it.
  int32_t awaited(const Entry& entry, const Wait& wait) const;
  // How an instruction says that it waits for an earlier entry of the same run.
  Wait wait_for(const Entry& entry, int32_t earlier) const;

 private:
  const Program& program_;
  std::vector<int32_t> rounds_;  // of each copy
  int32_t outside_, length_;     // instructions outside the stretch, and in it
};

}  // namespace ds
