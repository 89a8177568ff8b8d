#include <algorithm>

#include "core/base/error.h"
#include "core/program/hazards.h"
#include "core/program/program.h"

namespace ds {
namespace {

std::string at(const Program& p, size_t i) { return fmt::format("instruction {} ({})", i, p.instrs[i].op); }

// Operands inside their buffers, transient buffers written before read, nothing after the last use.
void verify_logical(const Program& p) {
  std::vector<char> written(p.buffers.size(), 0), dead(p.buffers.size(), 0);
  int32_t comm_order = -1;
  for (size_t i = 0; i < p.instrs.size(); ++i) {
    const Instr& in = p.instrs[i];
    if (in.queue == Queue::comm && in.comm_order >= 0) {
      ensure(in.comm_order > comm_order, "{} has place {} after {} in the order of collectives", at(p, i),
             in.comm_order, comm_order);
      comm_order = in.comm_order;
    }
    for (const Operand& o : in.operands) {
      ensure(o.buffer >= 0 && static_cast<size_t>(o.buffer) < p.buffers.size(), "{} names buffer {} of {}",
             at(p, i), o.buffer, p.buffers.size());
      size_t b = static_cast<size_t>(o.buffer);
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
      if (o.last) dead[static_cast<size_t>(o.buffer)] = 1;
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

void verify_physical(const Program& p) {
  HazardMap maps[6];
  OrderTracker order(p.instrs.size());
  std::vector<InstrId> conflicts;
  for (size_t i = 0; i < p.instrs.size(); ++i) {
    const Instr& in = p.instrs[i];
    order.begin(static_cast<InstrId>(i), in.queue);
    for (InstrId wait : in.waits) {
      ensure(wait >= 0 && static_cast<size_t>(wait) < i, "{} waits for instruction {}", at(p, i), wait);
      order.wait(wait);
    }
    for (const Operand& o : in.operands) {
      const Buffer& buffer = p.buffers[static_cast<size_t>(o.buffer)];
      PhysicalRange range = physical_range(p, o);
      const ArenaSizes& sizes = p.arenas[static_cast<int>(buffer.tier)];
      int64_t size = buffer.residency == Residency::persistent ? sizes.persistent : sizes.transient;
      ensure(buffer.offset >= 0 && range.end <= size, "{} uses %{} at {}..{} of an arena of {} bytes",
             at(p, i), buffer.name, range.begin, range.end, size);
      ensure(reachable(in.queue, buffer.tier, o.access), "{} on queue {} cannot touch %{} in tier {}",
             at(p, i), queue_name(in.queue), buffer.name, tier_name(buffer.tier));
      conflicts.clear();
      maps[range.arena].access(range.begin, range.end, o.access != Access::read, static_cast<InstrId>(i),
                               in.queue, conflicts);
      for (InstrId earlier : conflicts) {
        if (static_cast<size_t>(earlier) == i) continue;
        ensure(order.covered(earlier), "{} touches %{} without waiting for {}", at(p, i), buffer.name,
               at(p, static_cast<size_t>(earlier)));
      }
    }
    order.finish();
  }
}

}  // namespace

void verify(const Program& program, const VerifyOptions& options) {
  verify_logical(program);
  if (options.physical) verify_physical(program);
}

}  // namespace ds
