#pragma once
#include <cstddef>
#include <cstdint>

#include "core/program/hazards.h"
#include "core/program/program.h"
#include "core/program/repeat.h"

namespace ds {

// A base class for code that looks for conflicts. It enters the instructions of two successive runs
// of a program in issue order, so that conflicts between the runs are also found. Repeated
// instructions are entered for a few rounds only (core/program/repeat.h).
class TwoRuns {
 protected:
  explicit TwoRuns(const Program& program)
      : run_(program), order_(2 * static_cast<size_t>(run_.size())) {}

  // Calls enter(second, number) for every entry of both runs.
  template <typename Enter>
  void enter_all(const Enter& enter) {
    for (bool second : {false, true}) {
      for (int32_t n = 0; n < run_.size(); ++n) enter(second, n);
      order_.end_run();
    }
  }
  // Returns the number that an entry of the first or the second run has among the entries of both.
  InstrId entered(int32_t number, bool second) const {
    return InstrId(second ? number + run_.size() : number);
  }
  // Records a wait of the current entry, so that the awaited entry is ordered before it. In the
  // first run, a wait for the run before has no effect.
  void order_after(const ShortRun::Entry& entry, const Wait& wait, bool second) {
    int32_t awaited = run_.awaited(entry, wait);
    if (awaited >= 0 && (second || !wait.run_before))
      order_.wait(entered(awaited, second && !wait.run_before));
  }

  const ShortRun run_;
  HazardMap maps_[6];
  OrderTracker order_;
};

}  // namespace ds
