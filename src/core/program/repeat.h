#pragma once
#include <cstdint>
#include <vector>

#include "core/program/program.h"

namespace ds {

// A shortened run that represents all rounds: its issue order contains only the first two rounds of
// the repeated stretch and the last one.
//
// Code that checks or orders accesses looks at this run instead of at every round. That is enough,
// because every round has the same instructions on the same bytes, or on bytes that no other round
// touches (operands with a stride). So it suffices to order each access of round r against accesses
// of round r, of round r - 1, before the stretch and after it. Rounds 0 and 1 contain every such
// pair inside the stretch: if queues and waits (for the same round or the round before) order a
// pair in rounds 0 and 1, they also order it in rounds r - 1 and r. The last round contains the
// pairs with instructions after the stretch.
class ShortRun {
 public:
  explicit ShortRun(const Program& program);

  // Entries are numbered from 0 in issue order.
  int32_t size() const { return outside_ + copies() * length_; }
  int copies() const { return static_cast<int>(rounds_.size()); }
  struct Entry {
    InstrId instr;
    // Index of the copy of the repeated stretch; 0 outside the stretch.
    int copy = 0;
    int32_t round = 0;
  };
  Entry at(int32_t number) const;
  // Returns the index of an instruction's entry. `copy` matters only in the repeated stretch.
  int32_t number(InstrId instr, int copy) const;
  // Returns the index of the entry that `entry` waits for by `wait`. If the wait is for the run
  // before, it is the index of an entry of that run. Returns -1 for a wait for the round before in
  // the first round.
  int32_t awaited(const Entry& entry, const Wait& wait) const;
  // Returns the wait that makes an entry wait for an earlier entry of the same run.
  Wait wait_for(const Entry& entry, int32_t earlier) const;

 private:
  const Program& program_;
  // The round that each copy of the stretch represents.
  std::vector<int32_t> rounds_;
  // The number of instructions outside the repeated stretch and inside it.
  int32_t outside_, length_;
};

}  // namespace ds
