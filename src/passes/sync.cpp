// Problem: queues run at the same time. Two instructions that access the same bytes, at least one
// of them writing, must nevertheless run in issue order, because one reads what the other computes
// or because their buffers share memory (offsets.cpp). No code that emits instructions writes
// waits; they are derived here, and there should be few of them.
//
// Invariant: if two accesses of the same physical bytes conflict, the later one starts after the
// earlier one has finished. The two instructions are on one queue, or a chain of waits and queues
// leads from one to the other. This also holds for saves of the program's previous run, which may
// still be running when a run begins (docs/adr/0008).
//
// Algorithm: instructions are entered in issue order. HazardMap finds the earlier accesses of the
// same bytes that conflict: for each stretch of bytes it keeps the last write and the reads since.
// OrderTracker keeps a vector clock for each instruction: how many instructions of each queue have
// finished before it starts. A conflict becomes a wait only if the clock does not cover it yet. The
// latest conflict is examined first, because the waits of that instruction often cover the other
// conflicts. Two runs are entered, so that conflicts between the second and the first run are also
// found.
//
// Cost: the stretches of bytes that each operand covers and, for each wait, one join of clocks with
// an entry for each queue. Repeated instructions are entered in at most three rounds
// (core/program/repeat.h).
//
// Source: race detectors compare the last write and the reads since with vector clocks (Flanagan
// and Freund, "FastTrack: efficient and precise dynamic race detection", CACM, November 2010). They
// observe an order; this pass creates one.
#include "passes/sync.h"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <vector>

#include "core/program/hazards.h"
#include "core/program/instruction.h"
#include "core/program/program.h"
#include "core/program/repeat.h"
#include "core/program/two_runs.h"

namespace ds {
namespace {

// The derivation of waits. Two runs are entered, so that conflicts of the second run with saves of
// the first also become waits.
class Syncer : TwoRuns {
 public:
  explicit Syncer(Program& program) : TwoRuns(program), program_(program) {}

  void run() {
    for (Instr& in : program_.instrs) in.waits.clear();
    enter_all([this](bool second, int32_t number) { enter(second, number); });
  }

 private:
  void enter(bool second, int32_t number) {
    ShortRun::Entry entry = run_.at(number);
    Instr& in = program_.instrs[entry.instr];
    InstrId id = entered(number, second);
    order_.begin(id, in.queue);
    for (const Wait& wait : in.waits) order_after(entry, wait, second);
    conflicts_.clear();
    for (const Operand& o : in.operands) {
      PhysicalRange r = physical_range(program_, in, o, entry.round);
      maps_[r.arena].access(r.begin, r.end, o.access != Access::read, id, in.queue, conflicts_);
    }
    // Latest first: the waits of a later instruction often cover earlier conflicts.
    std::ranges::sort(conflicts_, std::greater<>());
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
  std::vector<InstrId> conflicts_;
};

}  // namespace

void insert_waits(Program& program) { Syncer(program).run(); }

}  // namespace ds
