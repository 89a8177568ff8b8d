#include <algorithm>
#include <cstdint>
#include <functional>
#include <vector>

#include "core/program/hazards.h"
#include "core/program/instruction.h"
#include "core/program/program.h"
#include "core/program/repeat.h"
#include "passes/schedule.h"

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
      PhysicalRange r = physical_range(program_, in, in_round(o, entry.round));
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
