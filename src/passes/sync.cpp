#include <algorithm>

#include "core/program/hazards.h"
#include "passes/schedule.h"

namespace ds {

void insert_waits(Program& program) {
  HazardMap maps[6];
  OrderTracker order(program.instrs.size());
  std::vector<InstrId> conflicts;
  for (size_t i = 0; i < program.instrs.size(); ++i) {
    Instr& in = program.instrs[i];
    InstrId id = static_cast<InstrId>(i);
    in.waits.clear();
    conflicts.clear();
    for (const Operand& o : in.operands) {
      PhysicalRange r = physical_range(program, o);
      maps[r.arena].access(r.begin, r.end, o.access != Access::read, id, in.queue, conflicts);
    }
    order.begin(id, in.queue);
    // Latest first: what it has waited for itself often covers the others.
    std::sort(conflicts.begin(), conflicts.end(), std::greater<>());
    for (InstrId earlier : conflicts) {
      if (earlier == id || order.covered(earlier)) continue;
      order.wait(earlier);
      in.waits.push_back(earlier);
    }
    order.finish();
  }
}

}  // namespace ds
