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
    for (InstrId base : {InstrId{0}, count()}) {
      for (InstrId i = 0; i < count(); ++i) enter(base, i);
      order_.end_run();
    }
  }

 private:
  InstrId count() const { return static_cast<InstrId>(program_.instrs.size()); }

  void enter(InstrId base, InstrId i) {
    Instr& in = program_.instrs[static_cast<size_t>(i)];
    InstrId id = base + i;
    order_.begin(id, in.queue);
    for (InstrId wait : in.waits) order_.wait(base + wait);
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
      in.waits.push_back(earlier - base);
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
