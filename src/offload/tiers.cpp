// Moves operands between the tiers of memory.
//
// Problem. State lives in a home tier: on the device, in host memory, or in a file. A kernel can
// access only the memory of its queue, and no kernel can access a file. The operands that ZeRO has
// emitted name state in its home tier, so transfers from there to each use, and back, have to be
// inserted, without moving a byte that is already where it is needed.
//
// Invariant. After this pass every operand, except those of loads and saves, is in the memory of
// its instruction's queue. At the end of the program the home contains the last value: a value that
// is written elsewhere is stored or saved after the write or, if the buffer stays in its host slot,
// after the last write. A buffer has at most one slot in which it stays, and all such slots
// together have at most resident_bytes.
//
// Algorithm. One walk over the instructions. 1. An instruction that follows the state (the update,
// accumulation) moves to the host queue if the home of any of its operands is not the device
// (choose_queue). 2. Each operand that is in another tier gets a transient buffer where it is
// needed: a host slot for a file (file_to_host), a copy in the other memory (copy), or both.
// Operands that the instruction reads are loaded or fetched before it; those that it writes are
// stored or saved after it. 3. A file that is written whole and used again stays in its slot while
// there is room (stays): later uses load nothing, and only the last write is saved (save). An
// instruction that reads a buffer directly after a write of the whole buffer also finds the bytes
// in its slot (slot_of). Transfers are ordinary instructions: hoist.cpp lets loads and fetches
// start earlier, and sync.cpp makes instructions wait for them.
//
// Cost. Linear in the operands. docs/adr/0008 has the bytes per step, and says why saves may
// continue into the next run.
//
// Source. The division of a step into sub-groups that stream through host memory comes from
// DeepSpeed's ZeRO-Infinity; here it is a plan, made before the first step.
#include "offload/tiers.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <utility>

#include "core/base/error.h"
#include "core/program/builder.h"

namespace ds {
namespace {

class TierMover {
 public:
  TierMover(Program& program, const TierOptions& options)
      : splice_(program),
        builder_(std::move(program)),
        options_(options),
        last_use_(builder_.program().buffers.size(), InstrId(0)),
        resident_(builder_.program().buffers.size()) {
    const IdVector<InstrId, Instr>& instrs = builder_.program().instrs;
    for (InstrId i : instrs.ids()) {
      for (const Operand& o : instrs[i].operands) last_use_[o.buffer] = i;
    }
  }

  Program run() {
    for (InstrId i : builder_.program().instrs.ids()) {
      choose_queue(builder_.program().instrs[i]);
      size_t operands = builder_.program().instrs[i].operands.size();
      for (size_t k = 0; k < operands; ++k) move(i, k);
    }
    for (const auto& [buffer, save] : last_saves_) splice_.after(save.first, save.second);
    Program program = builder_.take();
    splice_.apply(program);
    return program;
  }

 private:
  Tier tier(const Operand& o) const { return builder_.buffer(o.buffer).tier; }

  void choose_queue(Instr& in) {
    if (in.queue != Queue::compute || !in.def->follows_state) return;
    for (const Operand& o : in.operands) {
      if (tier(o) != Tier::device) in.queue = Queue::host;
    }
  }

  void move(InstrId index, size_t k) {
    const Instr in = builder_.program().instrs[index];
    Operand o = in.operands[k];
    Tier wanted = in.queue == Queue::host ? Tier::host : Tier::device;
    Tier home = tier(o);
    if (home == wanted && o.access != Access::read) twins_.erase(o.buffer);
    if (home == wanted || (!options_.emulate && home != Tier::nvme)) return;
    bool direct = home == Tier::nvme && (wanted == Tier::host || !options_.emulate);
    Operand host = o;
    if (home == Tier::nvme) {
      host = file_to_host(index, in, o);
      if (direct) {
        builder_.program().instrs[index].operands[k] = host;
        return;
      }
    }
    builder_.program().instrs[index].operands[k] = copy(index, in, host, wanted);
  }

  // Returns the host slot of a file operand, with a load before and a save after the instruction as
  // the access needs.
  Operand file_to_host(InstrId index, const Instr& in, const Operand& o) {
    int64_t bytes = o.bytes(builder_.program().bound);
    int64_t unit = size_of(o.type.dtype);
    int64_t skip = o.begin % options_.file_alignment;
    ensure(skip == 0 || o.access == Access::read,
           "'{}' writes %{} at byte {}, not a multiple of {}", in.def->name,
           builder_.buffer(o.buffer).name, o.begin, options_.file_alignment);
    BufferId held = slot_of(index, o);
    bool loaded = held.exists();
    int64_t numel = (skip + bytes) / unit;
    BufferId slot = loaded ? held
                           : builder_.transient(builder_.buffer(o.buffer).name + ".slot",
                                                o.type.dtype, numel, Tier::host);
    Operand used = o;
    used.buffer = slot;
    used.begin = loaded ? o.begin : skip;
    Operand near =
        flat(builder_.buffer(slot), slot, (used.begin - skip) / unit, numel, Access::write);
    Operand file =
        flat(builder_.buffer(o.buffer), o.buffer, (o.begin - skip) / unit, numel, Access::read);
    if (o.access != Access::write && !loaded)
      splice_.before(index, transfer(Op::load, in, file, near));
    if (!loaded && stays(index, o)) resident_[o.buffer] = slot;
    if (o.access != Access::read && whole(o) && in.when == MicroFilter())
      written_ = {o.buffer, slot, index};
    if (o.access != Access::read) save(index, o.buffer, transfer(Op::save, in, near, file));
    return used;
  }

  // The last save of a whole resident buffer replaces those before it.
  void save(InstrId index, BufferId file, Instr instr) {
    if (options_.save_every_write || !resident_[file].exists() || !whole(instr.operands[1])) {
      splice_.after(index, std::move(instr));
    } else {
      // The save runs in every micro-step, because the last write may be left out in some.
      instr.when = {};
      last_saves_.insert_or_assign(file, std::make_pair(index, std::move(instr)));
    }
  }

  // Returns a slot that contains the operand's bytes: a resident slot, or the slot that the
  // preceding instruction has written. Otherwise returns an id that does not exist.
  BufferId slot_of(InstrId index, const Operand& o) const {
    BufferId resident = resident_[o.buffer];
    if (resident.exists()) return resident;
    bool near =
        written_.buffer == o.buffer && written_.index + 1 == index && o.access == Access::read;
    return near ? written_.slot : BufferId();
  }

  bool whole(const Operand& o) {
    return o.begin == 0 && o.bytes(builder_.program().bound) == builder_.buffer(o.buffer).bytes();
  }

  // Returns whether the buffer may stay in its slot after instruction `index`; if so, its bytes are
  // added to taken_.
  bool stays(InstrId index, const Operand& o) {
    const Buffer& buffer = builder_.buffer(o.buffer);
    bool again = last_use_[o.buffer] > index;
    if (o.access == Access::read || !whole(o) || !again) return false;
    if (taken_ + buffer.bytes() > options_.resident_bytes) return false;
    taken_ += buffer.bytes();
    return true;
  }

  // Returns a copy of an operand in the other memory, with a fetch or store before and after the
  // instruction as the access needs.
  Operand copy(InstrId index, const Instr& in, const Operand& o, Tier wanted) {
    const Buffer& home = builder_.buffer(o.buffer);
    int64_t numel = o.type.shape.numel(builder_.program().bound);
    bool to_device = wanted == Tier::device;
    // Every update reads the step's scalars, so one copy serves all later readers.
    bool scalars = home.holds == Holds::scalars,
         stays = scalars && whole(o) && in.when == MicroFilter();
    auto known = twins_.find(o.buffer);
    bool current = stays && known != twins_.end();
    BufferId twin = current ? known->second
                            : builder_.transient(home.name + (to_device ? ".dev" : ".host"),
                                                 o.type.dtype, numel, wanted);
    if (scalars) builder_.program().buffers[twin].holds = Holds::scalars;
    if (stays) twins_.insert_or_assign(o.buffer, twin);
    Operand there = o;
    there.buffer = twin;
    there.begin = there.stride = 0;
    Operand source = o;
    if (o.access != Access::write && !current) {
      splice_.before(index, transfer(to_device ? Op::fetch : Op::store, in, source, there));
    }
    if (o.access != Access::read) {
      // This transfer follows the instruction and precedes a save of the same slot. Saves were
      // inserted first, so it is inserted before them.
      splice_.after_front(index, transfer(to_device ? Op::store : Op::fetch, in, there, source));
    }
    return there;
  }

  static Instr transfer(Op op, const Instr& in, Operand from, Operand to) {
    from.access = Access::read;
    to.access = Access::write;
    from.last = to.last = false;
    Instr moved = make_instr(op, {from, to}, {}, in.micro);
    moved.when = in.when;
    return moved;
  }

  Splice splice_;
  ProgramBuilder builder_;
  TierOptions options_;
  // For each buffer of the given program: its last use, and the slot that holds all of it, if any.
  IdVector<BufferId, InstrId> last_use_;
  IdVector<BufferId, BufferId> resident_;
  struct Written {
    BufferId buffer, slot;
    InstrId index;
  };
  // For a buffer, the buffer in the other memory that has the same contents.
  std::map<BufferId, BufferId> twins_;
  // The file buffer that an instruction has most recently written as a whole, its slot and the
  // instruction.
  Written written_;
  // Bytes of all resident slots.
  int64_t taken_ = 0;
  // For a resident buffer, its last save and the instruction that it follows.
  std::map<BufferId, std::pair<InstrId, Instr>> last_saves_;
};

}  // namespace

void insert_tier_moves(Program& program, const TierOptions& options) {
  program = TierMover(program, options).run();
  program.separate = options.emulate;
}

}  // namespace ds
