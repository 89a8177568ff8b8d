// Problem. State lives in a home tier: on the device, in host memory, in a file. A kernel reaches
// only the memory of its queue, and a file nobody reaches. ZeRO has named state where it lives, so
// the way from there to each use, and back, has to be put in; and no byte should be moved that is
// already where it is wanted.
//
// Invariant. Behind this pass every operand lies in the memory of its instruction's queue, but
// those of loads and saves. A home has the last value at the end of the program: what is written
// elsewhere is stored or saved behind the write, or, if the buffer stays in its host slot, behind
// the last one. A buffer has at most one such slot, and all of them together have at most
// resident_bytes.
//
// Algorithm. One walk over the instructions.
//  1. An instruction that follows the state (the update, accumulation) goes to the host queue when
//  any of its
//     operands is not at home on the device (choose_queue).
//  2. Each operand that lies elsewhere gets a transient buffer where it is wanted: a host slot for
//  a file
//     (file_to_host), a copy in the other memory (copy), or one behind the other. What the
//     instruction reads is loaded or fetched before it, what it writes is stored or saved behind
//     it.
//  3. A file that is written whole and used again stays in its slot while there is room (stays):
//  later uses
//     load nothing, and only the last write is saved (save). The instruction directly behind a
//     write finds the bytes in its slot, too (slot_of).
// Transfers are ordinary instructions: hoist.cpp lets loads and fetches start earlier, sync.cpp
// makes them wait.
//
// Cost. Linear in the operands. Bytes per step: docs/adr/0008, which also says why saves may go on
// into the next run.
//
// Source. The division of a step into sub-groups that stream through host memory is that of
// DeepSpeed's ZeRO-Infinity; here it is a plan, made before the first step.
#include "offload/tiers.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <utility>

#include "core/base/error.h"
#include "core/program/builder.h"
#include "optim/optimizer.h"

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

  // Host slot of a file operand with a load before and a save after, as the access asks.
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
      instr.when = {};  // the last write may be one that this micro-step leaves out
      last_saves_.insert_or_assign(file, std::make_pair(index, std::move(instr)));
    }
  }

  // A slot with the operand's bytes: a resident one, or that of the instruction just before.
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

  // Takes room for the buffer when it may stay in its slot after instruction `index`.
  bool stays(InstrId index, const Operand& o) {
    const Buffer& buffer = builder_.buffer(o.buffer);
    bool again = last_use_[o.buffer] > index;
    if (o.access == Access::read || !whole(o) || !again) return false;
    if (taken_ + buffer.bytes() > options_.resident_bytes) return false;
    taken_ += buffer.bytes();
    return true;
  }

  // Copy of an operand in the other memory, with a fetch or store before and after.
  Operand copy(InstrId index, const Instr& in, const Operand& o, Tier wanted) {
    const Buffer& home = builder_.buffer(o.buffer);
    int64_t numel = o.type.shape.numel(builder_.program().bound);
    bool to_device = wanted == Tier::device;
    // The step's scalars are read by every update: one copy serves those that follow.
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
      // After the instruction but before a save of the same slot: saves were queued first, so this
      // goes in front.
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
  IdVector<BufferId, InstrId> last_use_;   // of buffers of the program as given
  IdVector<BufferId, BufferId> resident_;  // of such a buffer: the slot that holds all of it
  struct Written {
    BufferId buffer, slot;
    InstrId index;
  };
  std::map<BufferId, BufferId>
      twins_;          // of a buffer: one in the other memory with the same contents
  Written written_;    // the last whole file buffer that an instruction wrote
  int64_t taken_ = 0;  // bytes of resident slots
  std::map<BufferId, std::pair<InstrId, Instr>>
      last_saves_;  // of resident buffers: behind which instruction
};

}  // namespace

void insert_tier_moves(Program& program, const TierOptions& options) {
  program = TierMover(program, options).run();
  program.separate = options.emulate;
}

}  // namespace ds
