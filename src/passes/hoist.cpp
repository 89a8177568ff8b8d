// Moves transfers ahead so that they run under compute.
//
// Problem: the compiler writes each transfer directly before the instruction that needs its result,
// so compute would wait for every transfer.
//
// Invariant: a start (a gather of parameters, a fetch to the device, a load from a file) may come
// earlier as long as it stays after the instructions that write its source, keeps the order among
// starts of its kind, and respects the limits of memory. Nothing else moves, so the result of every
// instruction stays the same.
//
// Algorithm: one walk in issue order. Each start gets an anchor: the instruction of the old order
// before which it is placed. This is the anchor of an earlier consumer of the same kind of start,
// as many consumers ahead as the kind allows, but not before the source is written. A gather may
// pass reductions, whose results are needed less urgently. Gathered parameters are live from the
// new place of the gather on, so it moves only as far as max_live_elements allows.
//
// Cost: linear in the instructions, plus a few consumers for each start and the instructions that a
// gather passes. Source: DeepSpeed's prefetch by order of use (Rajbhandari et al., "ZeRO-Infinity",
// 2021), here at compile time.
#include "passes/hoist.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

#include "core/base/error.h"
#include "core/base/ids.h"
#include "core/program/hazards.h"
#include "core/program/instruction.h"
#include "core/program/program.h"
#include "passes/offsets.h"

namespace ds {
namespace {

constexpr InstrId kNever(std::numeric_limits<int32_t>::max());

// The kinds of instructions that may be placed ahead of their consumer. `gather` includes the
// kernels that encode data for a gather.
enum class Start { none = -1, gather = 0, fetch, load };
constexpr size_t kStarts = 3;
// The largest number of consumers by which a start may run ahead of its own consumer. Gathers, and
// loads for the host queue, run ahead by more than one only if the data for all consumers in
// between fits the limits (HoistOptions).
constexpr size_t kGathersAhead = 4, kFetchesAhead = 1, kLoadsAhead = 2;
constexpr size_t kUnlimited = std::numeric_limits<size_t>::max();

// The new order under construction. Each instruction gets an anchor, an instruction of the old
// order; instructions that do not move are their own anchors. Among instructions with the same
// anchor, starts come first.
class Hoister {
 public:
  Hoister(Program& program, const HoistOptions& options)
      : program_(program),
        options_(options),
        anchor_(program.instrs.size()),
        first_use_(program.buffers.size(), kNever),
        gathered_(program.buffers.size(), 0),
        writers_(program.buffers.size()),
        live_(live_parameters(program)) {
    for (InstrId i : anchor_.ids()) anchor_[i] = i;
    find_consumers();
  }

  void run() {
    for (InstrId i : program_.instrs.ids()) {
      Start kind = start_of(program_.instrs[i]);
      if (begins_update(i)) queue_bound_[Queue::copy] = i;
      if (kind != Start::none) place(i, kind);
      note(i);
    }
    reorder();
  }

 private:
  static PerQueue<InstrId> first_bounds() {
    PerQueue<InstrId> bounds;
    bounds.fill(InstrId(0));
    return bounds;
  }

  // Returns the kind of start that an instruction is. Only starts that write a transient buffer
  // move, because a persistent buffer may be in use at any time.
  Start start_of(const Instr& in) const {
    if (!in.def->starts_early || buffer(in.operands[1]).residency != Residency::transient)
      return Start::none;
    if (in.def->kind == Kind::copy) return Start::fetch;
    if (in.def->kind == Kind::file) return Start::load;
    return in.bucket.exists() ? Start::gather : Start::none;
  }

  // Returns whether the update begins at an instruction. The caller may edit gradients before the
  // update, and their norms are then computed again, so copies of gradients or norms must not move
  // out of the update.
  bool begins_update(InstrId i) const {
    auto in_update = [&](InstrId at) {
      SegmentId segment = program_.instrs[at].segment;
      return program_.segments.has(segment) && program_.segments[segment].phase == Phase::update;
    };
    return i > InstrId(0) && in_update(i) && !in_update(i - 1);
  }

  const Buffer& buffer(const Operand& o) const { return program_.buffers[o.buffer]; }

  // Sets first_use_, gathered_ and brought_.
  void find_consumers() {
    for (InstrId i : program_.instrs.ids()) {
      bool start = start_of(program_.instrs[i]) != Start::none;
      if (start_of(program_.instrs[i]) == Start::gather)
        gathered_[program_.instrs[i].operands[1].buffer] = 1;
      for (size_t k = 0; k < program_.instrs[i].operands.size(); ++k) {
        if (start && k == 1) continue;
        InstrId& use = first_use_[program_.instrs[i].operands[k].buffer];
        use = std::min(use, i);
      }
    }
    // If a gather reads the result of another gather, both have the same consumer.
    for (InstrId i = program_.instrs.last(); i.exists(); --i) {
      const Instr& in = program_.instrs[i];
      if (start_of(in) != Start::gather) continue;
      InstrId& use = first_use_[in.operands[0].buffer];
      if (use == i && gathered_[in.operands[0].buffer]) use = first_use_[in.operands[1].buffer];
    }
    for (size_t kind = 0; kind < kStarts; ++kind) brought_[kind].assign(program_.instrs.size(), 0);
    for (const Instr& in : program_.instrs) {
      Start kind = start_of(in);
      if (kind == Start::none) continue;
      InstrId use = first_use_[in.operands[1].buffer];
      if (use != kNever) brought_[static_cast<size_t>(kind)][use] += amount(in, kind);
    }
  }

  // Returns the room that a start needs: elements for a gather, otherwise bytes.
  int64_t amount(const Instr& in, Start kind) const {
    return kind == Start::gather ? buffer(in.operands[1]).numel
                                 : in.operands[1].bytes(program_.bound);
  }

  // Returns the earliest anchor that keeps data dependences and the order of the queue, except that
  // gathers may pass reductions. The only kernels that move are those that encode; only their data
  // limits them.
  InstrId earliest(InstrId i) {
    const Instr& in = program_.instrs[i];
    InstrId bound = in.queue == Queue::compute ? InstrId(0) : queue_bound_[in.queue];
    if (in.queue == Queue::comm) bound = gather_bound_;
    for (InstrId writer : writers(i, in.operands[0])) {
      if (writer != i) bound = std::max(bound, after(writer));
    }
    return bound;
  }
  // Returns the instructions so far that wrote bytes of the operand, which instruction i reads.
  const std::vector<InstrId>& writers(InstrId i, const Operand& o) {
    found_.clear();
    writers_[o.buffer].access(o.begin, o.begin + o.bytes(program_.bound), false, i,
                              program_.instrs[i].queue, found_);
    return found_;
  }
  // Returns the first anchor after an instruction whose anchor is final.
  InstrId after(InstrId i) const { return anchor_[i] == i ? i + 1 : anchor_[i]; }

  void place(InstrId i, Start kind) {
    BufferId target = program_.instrs[i].operands[1].buffer;
    InstrId consumer = first_use_[target];
    if (consumer == kNever) return;
    std::vector<InstrId>& seen = consumers_[static_cast<size_t>(kind)];
    if (seen.empty() || consumer != seen.back()) seen.push_back(consumer);
    InstrId wanted = std::min(wanted_anchor(i, kind, seen), i);
    wanted = std::max(wanted, earliest(i));
    if (program_.instrs[i].queue == Queue::comm)
      wanted = within_limits(i, wanted, program_.buffers[target].numel);
    anchor_[i] = std::min(wanted, i);
  }

  // Returns the wanted anchor for the kind of start, before dependences and limits are applied.
  InstrId wanted_anchor(InstrId i, Start kind, const std::vector<InstrId>& seen) const {
    if (kind == Start::gather)
      return within_room(kind, kGathersAhead, options_.prefetch_elements, seen);
    if (kind == Start::load && program_.instrs[seen.back()].queue == Queue::host)
      return within_room(kind, kUnlimited, options_.load_bytes, seen);
    size_t ahead = kind == Start::load ? kLoadsAhead : kFetchesAhead;
    return seen.size() > ahead ? look_back(seen[seen.size() - 1 - ahead]) : i;
  }

  // Returns the anchor of the earliest consumer, at most `most` consumers ahead of the last, for
  // which the data of all consumers from it to the last fits in `room`. Goes at least one consumer
  // ahead. If the data of all consumers so far fits, returns the beginning of the program.
  InstrId within_room(Start kind, size_t most, int64_t room,
                      const std::vector<InstrId>& seen) const {
    const IdVector<InstrId, int64_t>& brought = brought_[static_cast<size_t>(kind)];
    size_t k = seen.size() - 1;
    int64_t sum = brought[seen[k]];
    for (size_t ahead = 1; k > 0 && ahead <= most; ++ahead, --k) {
      sum += brought[seen[k - 1]];
      if (sum > room && ahead > 1) break;
    }
    return k == 0 && sum <= room ? InstrId(0) : look_back(seen[k]);
  }

  // Returns the place of an earlier consumer in the new order: its anchor, which differs from the
  // consumer if the consumer is itself a start and has moved.
  InstrId look_back(InstrId consumer) const { return anchor_[consumer]; }

  // Returns the earliest anchor from `wanted` to i from which on `numel` more live elements stay
  // within max_live_elements, and adds them to the live elements from there on.
  InstrId within_limits(InstrId i, InstrId wanted, int64_t numel) {
    if (numel > options_.prefetch_elements) return i;
    InstrId at = i;
    while (at > wanted && live_[at - 1] + numel <= options_.max_live_elements) --at;
    for (InstrId k = at; k < i; ++k) live_[k] += numel;
    return at;
  }

  void note(InstrId i) {
    const Instr& in = program_.instrs[i];
    for (const Operand& o : in.operands) {
      if (o.access == Access::read) continue;
      found_.clear();
      writers_[o.buffer].access(o.begin, o.begin + o.bytes(program_.bound), true, i, in.queue,
                                found_);
    }
    queue_bound_[in.queue] = after(i);
    if (start_of(in) == Start::gather && in.queue == Queue::comm) gather_bound_ = after(i);
  }

  void reorder() {
    IdVector<InstrId, InstrId> order(program_.instrs.size());
    for (InstrId i : order.ids()) order[i] = i;
    std::ranges::stable_sort(order, [&](InstrId a, InstrId b) {
      if (anchor_[a] != anchor_[b]) return anchor_[a] < anchor_[b];
      return (anchor_[a] == a) < (anchor_[b] == b);
    });
    IdVector<InstrId, Instr> out;
    out.reserve(order.size());
    for (InstrId i : order) out.push_back(std::move(program_.instrs[i]));
    for (Segment& s : program_.segments) s.end = InstrId(0);
    program_.instrs = std::move(out);
    // A segment ends after its last instruction that has not moved. An instruction that has moved
    // ahead belongs to the segment in which it now runs.
    IdVector<SegmentId, InstrId> ends(program_.segments.size(), InstrId(0));
    for (InstrId at : order.ids()) {
      if (anchor_[order[at]] != order[at]) continue;
      ends[program_.instrs[at].segment] = at + 1;
    }
    close_segments(ends);
  }

  void close_segments(const IdVector<SegmentId, InstrId>& ends) {
    InstrId previous(0);
    for (SegmentId s : program_.segments.ids()) {
      previous = std::max(previous, ends[s]);
      program_.segments[s].end = previous;
    }
    if (!program_.segments.empty()) program_.segments.back().end = program_.instrs.past();
    SegmentId s(0);
    for (InstrId at : program_.instrs.ids()) {
      while (s < program_.segments.last() && program_.segments[s].end <= at) ++s;
      program_.instrs[at].segment = s;
    }
  }

  Program& program_;
  const HoistOptions& options_;
  IdVector<InstrId, InstrId> anchor_;
  // For each buffer, the first instruction that uses it other than as the result of a start.
  IdVector<BufferId, InstrId> first_use_;
  // True for buffers written by a gather or by the kernel that encodes for it.
  IdVector<BufferId, char> gathered_;
  // For each kind of start and each consumer, the elements (gathers) or bytes (other kinds) that
  // starts of this kind bring for the consumer.
  IdVector<InstrId, int64_t> brought_[kStarts];
  // The accesses so far, by bytes within each buffer, since buffers have no offsets yet.
  IdVector<BufferId, HazardMap> writers_;
  std::vector<InstrId> found_;
  IdVector<InstrId, int64_t> live_;
  PerQueue<InstrId> queue_bound_ = first_bounds();
  // The anchor after the last gather so far.
  InstrId gather_bound_{0};
  // For each kind of start, the distinct consumers of the starts so far.
  std::vector<InstrId> consumers_[kStarts];
};

}  // namespace

void hoist(Program& program, const HoistOptions& options) {
  if (!program.instrs.empty()) Hoister(program, options).run();
}

}  // namespace ds
