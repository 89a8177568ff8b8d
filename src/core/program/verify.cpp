// Problem: passes reorder instructions, move operands and let buffers overlap. A mistake in a pass
// would change results silently, so a program is verified before and after its offsets and waits
// are chosen (compile/finish_program.cpp). LogicalCheck goes through the instructions in issue
// order and checks each use of a buffer. PhysicalCheck enters two runs one after the other
// (TwoRuns), each with at most three rounds of the repeated stretch (ShortRun explains why these
// suffice), and checks that queues and waits order every two conflicting accesses of physical bytes
// (hazards.h). Cost: O(operands * log pieces), if operands cover few pieces each.
#include <fmt/core.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "core/program/hazards.h"
#include "core/program/program.h"
#include "core/program/repeat.h"
#include "core/program/two_runs.h"

namespace ds {
namespace {

std::string at(const Program& p, InstrId i) {
  return fmt::format("instruction {} ({})", i, p.instrs[i].def->name);
}

// Checks the number and the access of an instruction's operands against the rules of its row, if
// the row is built in, and that it has a group and runs on the comm queue if and only if it is a
// collective.
void verify_row(const Program& p, InstrId i) {
  const Instr& in = p.instrs[i];
  bool collective = in.def->kind == Kind::collective;
  ensure(collective == (in.group.size > 0),
         "{} has {} ranks; only collectives have ranks, and they must", at(p, i), in.group.size);
  ensure(collective == (in.queue == Queue::comm),
         "{} is on queue {}; collectives, and only they, run on comm", at(p, i),
         queue_name(in.queue));
  if (in.def->graph || in.def->op == Op::added) return;
  std::vector<OperandRule> rules = operand_rules(*in.def, in.operands.size());
  for (size_t k = 0; k < rules.size(); ++k) {
    Access access = in.operands[k].access;
    bool fits = access == rules[k].access || (rules[k].may_update && access == Access::update);
    ensure(fits, "{} has operand {}, %{}, with the wrong access", at(p, i), k,
           p.buffers.at(in.operands[k].buffer).name);
  }
}

// Returns whether a queue may access memory of a tier.
bool reachable(const Program& p, Queue queue, Tier tier, Access access) {
  switch (queue) {
    case Queue::compute:
    case Queue::comm:
      return tier == Tier::device || (tier == Tier::host && !p.separate);
    case Queue::host:
      return tier == Tier::host || (tier == Tier::device && !p.separate);
    case Queue::copy:
      return tier != Tier::nvme;
    case Queue::read:
      return access == Access::read ? tier == Tier::nvme : tier == Tier::host;
    case Queue::write:
      return access == Access::read ? tier == Tier::host : tier == Tier::nvme;
  }
  return false;
}

void verify_memory(const Program& p, InstrId i) {
  const Instr& in = p.instrs[i];
  for (size_t k = 0; k < in.operands.size(); ++k) {
    ensure(p.buffers.has(in.operands[k].buffer), "{} names buffer {} of {}", at(p, i),
           in.operands[k].buffer, p.buffers.size());
    const Buffer& buffer = p.buffers[in.operands[k].buffer];
    ensure(reachable(p, in.queue, buffer.tier, in.operands[k].access),
           "{} on queue {} has operand {}, %{}, in memory '{}', which it does not reach", at(p, i),
           queue_name(in.queue), k, buffer.name, tier_name(buffer.tier));
  }
}

// Checks that the repeated stretch is inside the program, and that an operand with a stride moves
// by at least its size, so that no two rounds touch the same bytes of it.
void verify_repeat(const Program& p) {
  const Repeat& r = p.repeat;
  ensure(r.rounds >= 1 && r.micros >= 1 && InstrId(0) <= r.begin && r.begin <= r.end &&
             r.end <= p.instrs.past(),
         "the repeated stretch [{}, {}) must lie within {} instructions, with at least 1 round and "
         "1 micro-step, got {} rounds",
         r.begin, r.end, p.instrs.past(), r.rounds);
  for (InstrId i : p.instrs.ids()) {
    for (const Operand& o : p.instrs[i].operands) {
      ensure(o.stride == 0 || r.has(i), "{} is not repeated, but has a stride of {} bytes",
             at(p, i), o.stride);
      ensure(o.stride == 0 || o.stride >= o.bytes(p.bound),
             "{} has a stride of {} bytes, less than the {} of its operand", at(p, i), o.stride,
             o.bytes(p.bound));
    }
  }
}

// A check that operands are inside their buffers, that transient buffers are written before they
// are read, and that no instruction uses them after their last use. A buffer whose last use was in
// one round must be written again in the next round.
class LogicalCheck {
 public:
  explicit LogicalCheck(const Program& p)
      : p_(p), run_(p), written_(p.buffers.size(), 0), ended_(p.buffers.size(), -1) {}

  void run() {
    for (InstrId i : p_.instrs.ids()) {
      verify_row(p_, i);
      verify_memory(p_, i);
      verify_order(i);
    }
    for (int32_t n = 0; n < run_.size(); ++n) enter(run_.at(n));
  }

 private:
  void verify_order(InstrId i) {
    const Instr& in = p_.instrs[i];
    if (in.queue != Queue::comm || in.comm_order < 0) return;
    ensure(in.comm_order > comm_order_,
           "{} has place {} in the order of collectives, after place {}", at(p_, i), in.comm_order,
           comm_order_);
    comm_order_ = in.comm_order;
  }

  void enter(const ShortRun::Entry& entry) {
    const Instr& in = p_.instrs[entry.instr];
    for (const Operand& operand : in.operands) {
      Operand o = in_round(operand, entry.round);
      const Buffer& buffer = p_.buffers[o.buffer];
      ensure(o.begin >= 0 && o.begin + o.bytes(p_.bound) <= buffer.bytes(),
             "{} uses bytes {}..{} of %{}, which has {} bytes", at(p_, entry.instr), o.begin,
             o.begin + o.bytes(p_.bound), buffer.name, buffer.bytes());
      if (buffer.residency == Residency::transient && !buffer.kept()) use(entry, o);
    }
    for (const Operand& o : in.operands) {
      ensure(!o.last || !p_.buffers[o.buffer].kept(), "{} marks the last use of %{}, which is kept",
             at(p_, entry.instr), p_.buffers[o.buffer].name);
      if (o.last) ended_[o.buffer] = entry.copy;
    }
  }

  void use(const ShortRun::Entry& entry, const Operand& o) {
    BufferId b = o.buffer;
    bool again = ended_[b] >= 0 && ended_[b] < entry.copy && p_.repeat.has(entry.instr);
    // The last use was in an earlier round; in this round the buffer must be written again.
    if (again) {
      ended_[b] = -1;
      written_[b] = 0;
    }
    ensure(ended_[b] < 0, "{} uses %{} after its last use", at(p_, entry.instr),
           p_.buffers[b].name);
    ensure(o.access == Access::write || written_[b], "{} reads %{} before it is written",
           at(p_, entry.instr), p_.buffers[b].name);
    if (o.access != Access::read) written_[b] = 1;
  }

  const Program& p_;
  ShortRun run_;
  IdVector<BufferId, char> written_;
  // For each buffer, the copy of the repeated stretch that contained its last use, or -1 if the
  // last use is still to come.
  IdVector<BufferId, int> ended_;
  int32_t comm_order_ = -1;
};

// Checks that a buffer that is kept between runs shares its bytes with no other transient buffer
// that the program uses.
void verify_kept(const Program& p) {
  if (std::none_of(p.buffers.begin(), p.buffers.end(), [](const Buffer& b) { return b.kept(); }))
    return;
  IdVector<BufferId, char> used(p.buffers.size(), 0);
  for (const Instr& in : p.instrs) {
    for (const Operand& o : in.operands) used[o.buffer] = 1;
  }
  for (BufferId b : p.buffers.ids()) {
    const Buffer& kept = p.buffers[b];
    if (!used[b] || !kept.kept()) continue;
    for (BufferId other : p.buffers.ids()) {
      const Buffer& o = p.buffers[other];
      if (other == b || !used[other] || o.residency != Residency::transient || o.tier != kept.tier)
        continue;
      ensure(o.offset + o.bytes() <= kept.offset || kept.offset + kept.bytes() <= o.offset,
             "%{} at {}..{} shares bytes with %{}, which is kept at {}..{}", o.name, o.offset,
             o.offset + o.bytes(), kept.name, kept.offset, kept.offset + kept.bytes());
    }
  }
}

// A check that queues and waits order every conflict in two consecutive runs.
class PhysicalCheck : TwoRuns {
 public:
  explicit PhysicalCheck(const Program& p) : TwoRuns(p), p_(p) {}

  void run() {
    enter_all([this](bool second, int32_t number) { enter(second, number); });
  }

 private:
  void enter(bool second, int32_t number) {
    ShortRun::Entry entry = run_.at(number);
    InstrId i = entry.instr;
    const Instr& in = p_.instrs[i];
    InstrId id = entered(number, second);
    order_.begin(id, in.queue);
    // A wait names an earlier instruction, unless it is for the run before or the round before.
    for (const Wait& wait : in.waits) {
      bool both = p_.repeat.has(i) && p_.repeat.has(wait.instr);
      ensure(p_.instrs.has(wait.instr) &&
                 (wait.run_before || (wait.round_before ? both : wait.instr < i)),
             "{} waits for instruction {}, which does not precede it", at(p_, i), wait.instr);
      order_after(entry, wait, second);
    }
    for (const Operand& o : in.operands) place(in, i, in_round(o, entry.round));
    for (const Operand& o : in.operands) conflicts(in, i, id, in_round(o, entry.round));
    order_.finish();
  }

  void place(const Instr& in, InstrId i, const Operand& o) {
    const Buffer& buffer = p_.buffers[o.buffer];
    PhysicalRange range = physical_range(p_, in, o);
    const ArenaSizes& sizes = p_.arenas[static_cast<int>(buffer.tier)];
    int64_t size = buffer.residency == Residency::persistent ? sizes.persistent : sizes.transient;
    ensure(buffer.offset >= 0 && range.end <= size,
           "{} uses %{} at {}..{}, outside its arena of {} bytes", at(p_, i), buffer.name,
           range.begin, range.end, size);
  }

  void conflicts(const Instr& in, InstrId i, InstrId id, const Operand& o) {
    PhysicalRange range = physical_range(p_, in, o);
    found_.clear();
    maps_[range.arena].access(range.begin, range.end, o.access != Access::read, id, in.queue,
                              found_);
    for (InstrId earlier : found_) {
      if (earlier == id || order_.covered(earlier)) continue;
      int32_t n = earlier.number(), mine = id.number();
      bool run_before = n < run_.size() && mine >= run_.size();
      ShortRun::Entry other = run_.at(n % run_.size()), self = run_.at(mine % run_.size());
      bool round_before =
          !run_before && p_.repeat.has(i) && p_.repeat.has(other.instr) && other.copy < self.copy;
      raise(DS_ERROR_INTERNAL, "{} touches %{} without waiting for {}{}", at(p_, i),
            p_.buffers[o.buffer].name, at(p_, other.instr),
            run_before     ? " of the run before"
            : round_before ? " of the round before"
                           : "");
    }
  }

  const Program& p_;
  std::vector<InstrId> found_;
};

}  // namespace

void verify(const Program& program, const VerifyOptions& options) {
  verify_repeat(program);
  LogicalCheck(program).run();
  if (!options.physical) return;
  verify_kept(program);
  PhysicalCheck(program).run();
}

}  // namespace ds
