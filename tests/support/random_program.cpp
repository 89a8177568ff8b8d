#include <algorithm>

#include "core/program/builder.h"
#include "support/dice.h"
#include "support/tags.h"

namespace ds::test {
namespace {

constexpr DType kTypes[] = {DS_DTYPE_F32, DS_DTYPE_BF16, DS_DTYPE_F16, DS_DTYPE_I32};
// The largest number of live transient buffers of one tier before an instruction is drawn.
constexpr size_t kMostLive = 4;

class Writer {
 public:
  Writer(uint64_t seed, int rank, int world) : builder_(start(seed, rank, world)), dice_(seed, 1) {
    for (size_t b = 0; b < builder_.program().buffers.size(); ++b) {
      const Buffer& buffer = builder_.buffer(static_cast<BufferId>(b));
      kept_[static_cast<int>(buffer.tier)].push_back(static_cast<BufferId>(b));
    }
  }

  Program write(int length) {
    while (static_cast<int>(builder_.program().instrs.size()) < length) add_one();
    for (Tier tier : {Tier::nvme, Tier::device, Tier::host}) {
      while (!live_[static_cast<int>(tier)].empty()) retire(tier);
    }
    builder_.end_segment(Phase::update);
    Program program = builder_.take();
    mark_last_uses(program);
    number_collectives(program);
    return program;
  }

 private:
  // Creates the persistent buffers. Their sizes are arbitrary, except that the first one in the
  // file is a whole block.
  static Program start(uint64_t seed, int rank, int world) {
    Dice dice(seed);
    Program p;
    p.name = "random-" + std::to_string(seed);
    p.rank = rank;
    p.mesh = world;
    p.separate = true;
    for (Tier tier : {Tier::device, Tier::host, Tier::nvme}) {
      for (int k = 0; k < 3; ++k) {
        int64_t numel = 1 + dice.below(1500);
        if (tier == Tier::nvme && k == 0) numel = 1024;
        p.buffers.push_back({tier_name(tier) + std::to_string(k), kTypes[k], numel, tier,
                             Residency::persistent, -1});
      }
    }
    return p;
  }

  int64_t draw(int64_t end) { return dice_.below(end); }
  const Buffer& buffer(BufferId id) const { return builder_.buffer(id); }
  std::vector<BufferId>& live(Tier tier) { return live_[static_cast<int>(tier)]; }

  Operand whole(BufferId id, Access access) {
    return flat(buffer(id), id, 0, buffer(id).numel, access);
  }
  Operand part(BufferId id, Access access) {
    int64_t first = draw(buffer(id).numel), numel = 1 + draw(buffer(id).numel - first);
    return flat(buffer(id), id, first, numel, access);
  }
  Operand whole_or_part(BufferId id, Access access) {
    return draw(2) == 0 ? whole(id, access) : part(id, access);
  }
  // Returns a written buffer of the tier that is not in `taken`. Three times out of four it is
  // transient if there are transient ones.
  BufferId any(Tier tier, const std::vector<Operand>& taken = {}) {
    for (;;) {
      const auto& from =
          live(tier).empty() || draw(4) == 0 ? kept_[static_cast<int>(tier)] : live(tier);
      BufferId id = from[static_cast<size_t>(draw(static_cast<int64_t>(from.size())))];
      bool used =
          std::any_of(taken.begin(), taken.end(), [&](const Operand& o) { return o.buffer == id; });
      if (!used) return id;
    }
  }
  BufferId kept(Tier tier) { return kept_[static_cast<int>(tier)][static_cast<size_t>(draw(3))]; }

  BufferId fresh(Tier tier, DType dtype, int64_t numel) {
    BufferId id = builder_.transient("t", dtype, numel, tier);
    live(tier).push_back(id);
    return id;
  }

  void tag(Tier tier, std::vector<Operand> operands) {
    int64_t updates = 0, outputs = 0;
    for (const Operand& o : operands) {
      if (o.access == Access::update) updates |= int64_t{1} << outputs;
      outputs += o.access != Access::read;
    }
    Instr in = make_instr(tag_instruction(), std::move(operands),
                          {{"id", serial_++}, {"updates", updates}});
    in.queue = tier == Tier::device ? Queue::compute : Queue::host;
    builder_.emit(std::move(in));
  }

  // Adds a tag that reads up to two operands and either writes a new buffer, sometimes in two
  // halves by two instructions, or changes one or two existing buffers.
  void add_tag(Tier tier) {
    std::vector<Operand> operands;
    int64_t kind = draw(8);
    for (int64_t reads = draw(kind == 3 ? 2 : 3); reads > 0; --reads)
      operands.push_back(whole_or_part(any(tier, operands), Access::read));
    if (kind >= 3) {
      operands.push_back(whole_or_part(any(tier, operands), Access::update));
      if (kind == 3) operands.push_back(whole_or_part(any(tier, operands), Access::write));
      return tag(tier, std::move(operands));
    }
    BufferId id = fresh(tier, kTypes[draw(3)], 1 + draw(1500));
    int64_t half = buffer(id).numel / 2;
    if (kind > 0 || half == 0) {
      operands.push_back(whole(id, Access::write));
      return tag(tier, std::move(operands));
    }
    operands.push_back(flat(buffer(id), id, 0, half, Access::write));
    tag(tier, std::move(operands));
    fill_rest(tier, id, half);
  }

  // Fills the elements from `first` on by a copy from the other memory tier if possible.
  void fill_rest(Tier tier, BufferId id, int64_t first) {
    int64_t numel = buffer(id).numel - first;
    Tier other = tier == Tier::device ? Tier::host : Tier::device;
    for (BufferId from : kept_[static_cast<int>(other)]) {
      if (buffer(from).dtype != buffer(id).dtype || buffer(from).numel < numel) continue;
      return copy(flat(buffer(from), from, 0, numel, Access::read),
                  flat(buffer(id), id, first, numel, Access::write));
    }
    tag(tier, {flat(buffer(id), id, first, numel, Access::write)});
  }

  void copy(Operand from, Operand to) {
    bool up = buffer(to.buffer).tier == Tier::device;
    builder_.emit(up ? Op::fetch : Op::store, {from, to});
  }

  void add_copy() {
    Tier from = draw(2) == 0 ? Tier::device : Tier::host;
    Tier to = from == Tier::device ? Tier::host : Tier::device;
    Operand read = whole_or_part(any(from), Access::read);
    int64_t numel = read.type.shape.numel(1);
    BufferId target = kept(to);
    if (draw(3) == 0 && buffer(target).dtype == read.type.dtype && buffer(target).numel >= numel) {
      return copy(read,
                  flat(buffer(target), target, buffer(target).numel - numel, numel, Access::write));
    }
    BufferId id = fresh(to, read.type.dtype, numel);
    copy(read, whole(id, Access::write));
  }

  void add_collective() {
    int64_t kind = draw(3), world = builder_.program().mesh.ranks();
    if (kind == 0) {
      Operand read = whole_or_part(any(Tier::device), Access::read);
      int64_t numel = read.type.shape.numel(1);
      if (numel > 2000)
        read = flat(buffer(read.buffer), read.buffer, 0, numel = 1999, Access::read);
      return collective(Op::all_gather, read, numel * world);
    }
    BufferId from = any(Tier::device);
    for (int tries = 0; buffer(from).dtype != DS_DTYPE_F32 && tries < 8; ++tries)
      from = any(Tier::device);
    if (buffer(from).dtype != DS_DTYPE_F32) from = kept_[0][0];
    int64_t numel = buffer(from).numel / world * world;
    if (numel == 0) return;
    Operand read = flat(buffer(from), from, 0, numel, Access::read);
    collective(kind == 1 ? Op::reduce_scatter : Op::all_reduce, read,
               kind == 1 ? numel / world : numel);
  }

  void collective(Op op, const Operand& read, int64_t numel) {
    BufferId id = fresh(Tier::device, read.type.dtype, numel);
    builder_.emit(op, {read, whole(id, Access::write)}).group =
        builder_.program().mesh.data_group();
  }

  // Loads a file extent, always as a whole.
  BufferId load(BufferId file) {
    BufferId id = fresh(Tier::host, buffer(file).dtype, buffer(file).numel);
    builder_.emit(Op::load, {whole(file, Access::read), whole(id, Access::write)});
    return id;
  }

  void save(BufferId file) {
    BufferId slot;
    for (BufferId id : live(Tier::host)) {
      if (buffer(id).dtype == buffer(file).dtype && buffer(id).numel == buffer(file).numel)
        slot = id;
    }
    if (!slot.exists()) {
      slot = fresh(Tier::host, buffer(file).dtype, buffer(file).numel);
      tag(Tier::host, {part(kept(Tier::host), Access::read), whole(slot, Access::write)});
    }
    builder_.emit(Op::save, {whole(slot, Access::read), whole(file, Access::write)});
  }

  // Uses the oldest transient buffer of a tier for the last time: loads it if it is in the file,
  // otherwise changes a persistent buffer depending on its bytes.
  void retire(Tier tier) {
    BufferId id = live(tier).front();
    live(tier).erase(live(tier).begin());
    if (tier == Tier::nvme) {
      load(id);
      return;
    }
    tag(tier, {whole(id, Access::read), whole_or_part(kept(tier), Access::update)});
  }

  void add_file() {
    int64_t kind = draw(5);
    if (kind < 2) {
      load(any(Tier::nvme));
    } else if (kind < 4) {
      save(any(Tier::nvme));
    } else {
      save(fresh(Tier::nvme, kTypes[draw(3)], 1 + draw(1500)));
    }
  }

  void add_one() {
    for (Tier tier : {Tier::nvme, Tier::device, Tier::host}) {
      while (live(tier).size() > kMostLive) retire(tier);
    }
    int64_t kind = draw(20);
    if (kind < 6) return add_tag(Tier::device);
    if (kind < 10) return add_tag(Tier::host);
    if (kind < 13) return add_collective();
    if (kind < 17) return add_copy();
    add_file();
  }

  ProgramBuilder builder_;
  Dice dice_;
  int64_t serial_ = 0;
  // By tier: the persistent buffers, and the transient ones that have been written.
  std::vector<BufferId> kept_[3], live_[3];
};

}  // namespace

Program random_program(uint64_t seed, int rank, int world, int length) {
  return Writer(seed, rank, world).write(length);
}

}  // namespace ds::test
