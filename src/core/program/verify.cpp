#include <algorithm>

#include "core/base/error.h"
#include "core/program/hazards.h"
#include "core/program/program.h"

namespace ds {
namespace {

std::string at(const Program& p, InstrId i) {
  return fmt::format("instruction {} ({})", i, p.instrs[i].def->name);
}

// What its row says: operands by number and access, a group for a collective and for nothing else.
void verify_row(const Program& p, InstrId i) {
  const Instr& in = p.instrs[i];
  bool collective = in.def->kind == Kind::collective;
  ensure(collective == (in.group.size > 0), "{} names {} ranks", at(p, i), in.group.size);
  ensure(collective == (in.queue == Queue::comm), "{} is on queue {}", at(p, i), queue_name(in.queue));
  if (in.def->graph || in.def->op == Op::added) return;
  std::vector<OperandRule> rules = operand_rules(*in.def, in.operands.size());
  for (size_t k = 0; k < rules.size(); ++k) {
    Access access = in.operands[k].access;
    bool fits = access == rules[k].access || (rules[k].may_update && access == Access::update);
    ensure(fits, "{} has operand {}, %{}, with the wrong access", at(p, i), k,
           p.buffers.at(in.operands[k].buffer).name);
  }
}

// Operands inside their buffers, transient buffers written before read, nothing after the last use.
void verify_logical(const Program& p) {
  IdVector<BufferId, char> written(p.buffers.size(), 0), dead(p.buffers.size(), 0);
  int32_t comm_order = -1;
  for (InstrId i : p.instrs.ids()) {
    const Instr& in = p.instrs[i];
    verify_row(p, i);
    if (in.queue == Queue::comm && in.comm_order >= 0) {
      ensure(in.comm_order > comm_order, "{} has place {} after {} in the order of collectives", at(p, i),
             in.comm_order, comm_order);
      comm_order = in.comm_order;
    }
    for (const Operand& o : in.operands) {
      ensure(p.buffers.has(o.buffer), "{} names buffer {} of {}", at(p, i), o.buffer, p.buffers.size());
      BufferId b = o.buffer;
      const Buffer& buffer = p.buffers[b];
      ensure(o.begin >= 0 && o.begin + o.bytes(p.bound) <= buffer.bytes(),
             "{} uses bytes {}..{} of %{} ({} bytes)", at(p, i), o.begin, o.begin + o.bytes(p.bound),
             buffer.name, buffer.bytes());
      if (buffer.residency == Residency::persistent) continue;
      ensure(!dead[b], "{} uses %{} after its last use", at(p, i), buffer.name);
      ensure(o.access == Access::write || written[b], "{} reads %{} before it is written", at(p, i),
             buffer.name);
      if (o.access != Access::read) written[b] = 1;
    }
    for (const Operand& o : in.operands) {
      if (o.last) dead[o.buffer] = 1;
    }
  }
}

// Which memory each queue may touch.
bool reachable(Queue queue, Tier tier, Access access) {
  switch (queue) {
    case Queue::compute:
    case Queue::comm:
    case Queue::host:
    case Queue::copy:
      return tier != Tier::nvme;
    case Queue::read:
      return access == Access::read ? tier == Tier::nvme : tier == Tier::host;
    case Queue::write:
      return access == Access::read ? tier == Tier::host : tier == Tier::nvme;
  }
  return false;
}

// Two runs, one after the other: every conflict is ordered by queues and waits, also that of the second run
// with saves of the first.
class PhysicalCheck {
 public:
  explicit PhysicalCheck(const Program& p) : p_(p), order_(2 * p.instrs.size()) {}

  void run() {
    for (bool second : {false, true}) {
      for (InstrId i : p_.instrs.ids()) enter(second, i);
      order_.end_run();
    }
  }

 private:
  int32_t count() const { return p_.instrs.past().number(); }
  // The number of an instruction in the first or the second run.
  InstrId entered(InstrId i, bool second) const { return second ? i + count() : i; }

  void enter(bool second, InstrId i) {
    const Instr& in = p_.instrs[i];
    InstrId id = entered(i, second);
    order_.begin(id, in.queue);
    for (const Wait& wait : in.waits) {
      ensure(p_.instrs.has(wait.instr) && (wait.run_before || wait.instr < i), "{} waits for instruction {}",
             at(p_, i), wait.instr);
      if (!wait.run_before || second) order_.wait(entered(wait.instr, second && !wait.run_before));
    }
    for (const Operand& o : in.operands) place(in, i, o);
    for (const Operand& o : in.operands) conflicts(in, i, id, o);
    order_.finish();
  }

  void place(const Instr& in, InstrId i, const Operand& o) {
    const Buffer& buffer = p_.buffers[o.buffer];
    PhysicalRange range = physical_range(p_, in, o);
    const ArenaSizes& sizes = p_.arenas[static_cast<int>(buffer.tier)];
    int64_t size = buffer.residency == Residency::persistent ? sizes.persistent : sizes.transient;
    ensure(buffer.offset >= 0 && range.end <= size, "{} uses %{} at {}..{} of an arena of {} bytes",
           at(p_, i), buffer.name, range.begin, range.end, size);
    ensure(reachable(in.queue, buffer.tier, o.access), "{} on queue {} cannot touch %{} in tier {}",
           at(p_, i), queue_name(in.queue), buffer.name, tier_name(buffer.tier));
  }

  void conflicts(const Instr& in, InstrId i, InstrId id, const Operand& o) {
    PhysicalRange range = physical_range(p_, in, o);
    found_.clear();
    maps_[range.arena].access(range.begin, range.end, o.access != Access::read, id, in.queue, found_);
    for (InstrId earlier : found_) {
      if (earlier == id || order_.covered(earlier)) continue;
      bool first = p_.instrs.has(earlier);
      raise(DS_ERROR_INTERNAL, "{} touches %{} without waiting for {}{}", at(p_, i),
            p_.buffers[o.buffer].name, at(p_, first ? earlier : earlier - count()),
            first && id != i ? " of the run before" : "");
    }
  }

  const Program& p_;
  HazardMap maps_[6];
  OrderTracker order_;
  std::vector<InstrId> found_;
};

}  // namespace

void verify(const Program& program, const VerifyOptions& options) {
  verify_logical(program);
  if (options.physical) PhysicalCheck(program).run();
}

}  // namespace ds
