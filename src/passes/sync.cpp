#include <algorithm>

#include "core/program/hazards.h"
#include "passes/schedule.h"

namespace ds {
namespace {

// Enters the program twice: conflicts of the second run with saves of the first are waits, too.
class Syncer {
 public:
  explicit Syncer(Program& program) : program_(program), order_(2 * program.instrs.size()) {}

  void run() {
    for (Instr& in : program_.instrs) in.waits.clear();
    for (bool second : {false, true}) {
      for (InstrId i : program_.instrs.ids()) enter(second, i);
      order_.end_run();
    }
  }

 private:
  int32_t count() const { return program_.instrs.past().number(); }
  // The number of an instruction in the first or the second run.
  InstrId entered(InstrId i, bool second) const { return second ? i + count() : i; }

  void enter(bool second, InstrId i) {
    Instr& in = program_.instrs[i];
    InstrId id = entered(i, second);
    order_.begin(id, in.queue);
    for (const Wait& wait : in.waits) order_.wait(entered(wait.instr, second && !wait.run_before));
    conflicts_.clear();
    for (const Operand& o : in.operands) {
      PhysicalRange r = physical_range(program_, in, o);
      maps_[r.arena].access(r.begin, r.end, o.access != Access::read, id, in.queue, conflicts_);
    }
    // Latest first: what it has waited for itself often covers the others.
    std::sort(conflicts_.begin(), conflicts_.end(), std::greater<>());
    for (InstrId earlier : conflicts_) {
      if (earlier == id || order_.covered(earlier)) continue;
      order_.wait(earlier);
      bool first = program_.instrs.has(earlier);
      in.waits.push_back({first ? earlier : earlier - count(), first && second});
    }
    order_.finish();
  }

  Program& program_;
  HazardMap maps_[6];
  OrderTracker order_;
  std::vector<InstrId> conflicts_;
};

}  // namespace

void insert_waits(Program& program) { Syncer(program).run(); }

}  // namespace ds
