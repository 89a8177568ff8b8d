// Problem. Queues run at the same time. Two instructions that touch the same bytes, of which one
// writes, must nevertheless run in the order in which they were issued: because one makes what the
// other reads, or because their buffers were given the same memory (offsets.cpp). Nobody writes
// waits by hand, so they are derived here, and there should be few of them.
//
// Invariant. Of two conflicting accesses of the same physical bytes the later one starts when the
// earlier one has finished: both are on one queue, or a chain of waits and queues leads from one to
// the other. This also holds for saves of the program's previous run, which may go on while a run
// begins (docs/adr/0008).
//
// Algorithm. Instructions are entered in issue order. HazardMap says which earlier accesses of the
// same bytes conflict: for each stretch of bytes it keeps the last write and the reads since.
// OrderTracker keeps for each instruction a vector clock: how many instructions of each queue have
// finished before it starts. A conflict becomes a wait only if the clock does not cover it yet; the
// latest conflict is looked at first, because what that one has waited for often covers the others.
// Two runs are entered, so that conflicts of the second with the first are found, too.
//
// Cost. For each operand the stretches that it covers, for each wait one join of clocks with an
// entry for each queue. Repeated instructions are entered in three rounds, however many they have
// (core/program/repeat.h).
//
// Source. The last write and the reads since, compared with vector clocks, is how race detectors
// work: Flanagan and Freund, "FastTrack: efficient and precise dynamic race detection" (CACM,
// November 2010). Here the order is not observed but made.
#include "passes/sync.h"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <vector>

#include "core/program/hazards.h"
#include "core/program/instruction.h"
#include "core/program/program.h"
#include "core/program/repeat.h"

namespace ds {
namespace {

// Enters two runs: conflicts of the second run with saves of the first are waits, too. Of repeated
// instructions a run has a few rounds (core/program/repeat.h).
class Syncer {
 public:
  explicit Syncer(Program& program)
      : program_(program), run_(program), order_(2 * static_cast<size_t>(run_.size())) {}

  void run() {
    for (Instr& in : program_.instrs) in.waits.clear();
    for (bool second : {false, true}) {
      for (int32_t n = 0; n < run_.size(); ++n) enter(second, n);
      order_.end_run();
    }
  }

 private:
  // An entry of the first or the second run among those of both.
  InstrId entered(int32_t number, bool second) const {
    return InstrId(second ? number + run_.size() : number);
  }

  void enter(bool second, int32_t number) {
    ShortRun::Entry entry = run_.at(number);
    Instr& in = program_.instrs[entry.instr];
    InstrId id = entered(number, second);
    order_.begin(id, in.queue);
    for (const Wait& wait : in.waits) {
      int32_t awaited = run_.awaited(entry, wait);
      if (awaited >= 0 && (second || !wait.run_before))
        order_.wait(entered(awaited, second && !wait.run_before));
    }
    conflicts_.clear();
    for (const Operand& o : in.operands) {
      PhysicalRange r = physical_range(program_, in, o, entry.round);
      maps_[r.arena].access(r.begin, r.end, o.access != Access::read, id, in.queue, conflicts_);
    }
    // Latest first: what it has waited for itself often covers the others.
    std::sort(conflicts_.begin(), conflicts_.end(), std::greater<>());
    for (InstrId earlier : conflicts_) {
      if (earlier == id || order_.covered(earlier)) continue;
      order_.wait(earlier);
      int32_t n = earlier.number();
      bool run_before = second && n < run_.size();
      in.waits.push_back(run_before ? Wait{run_.at(n).instr, true}
                                    : run_.wait_for(entry, second ? n - run_.size() : n));
    }
    order_.finish();
  }

  Program& program_;
  ShortRun run_;
  HazardMap maps_[6];
  OrderTracker order_;
  std::vector<InstrId> conflicts_;
};

}  // namespace

void insert_waits(Program& program) { Syncer(program).run(); }

}  // namespace ds
