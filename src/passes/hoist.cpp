#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

#include "core/base/error.h"
#include "core/base/ids.h"
#include "core/program/hazards.h"
#include "core/program/instruction.h"
#include "core/program/program.h"
#include "passes/schedule.h"

namespace ds {
namespace {

constexpr InstrId kNever(std::numeric_limits<int32_t>::max());

// What may start before its consumer. gather: of parameters, and the encoding of what is gathered.
enum class Start { none = -1, gather = 0, fetch, load };
constexpr size_t kStarts = 3;
// Consumers that a start may run ahead; loads for the host queue go by bytes instead.
constexpr size_t kAhead[kStarts] = {1, 1, 2};

// A new place for every instruction: it comes directly before old instruction `anchor`, starts before others.
class Hoister {
 public:
  Hoister(Program& program, const HoistOptions& options)
      : program_(program),
        options_(options),
        anchor_(program.instrs.size()),
        first_use_(program.buffers.size(), kNever),
        gathered_(program.buffers.size(), 0),
        loaded_(program.instrs.size(), 0),
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

  Start start_of(const Instr& in) const {
    if (!in.def->starts_early || buffer(in.operands[1]).residency != Residency::transient) return Start::none;
    if (in.def->kind == Kind::copy) return Start::fetch;
    if (in.def->kind == Kind::file) return Start::load;
    return in.bucket.exists() ? Start::gather : Start::none;
  }

  // The caller may edit gradients before the update, which renews their norms. So copies of either are made
  // within it.
  bool begins_update(InstrId i) const {
    auto in_update = [&](InstrId at) {
      SegmentId segment = program_.instrs[at].segment;
      return program_.segments.has(segment) && program_.segments[segment].phase == Phase::update;
    };
    return i > InstrId(0) && in_update(i) && !in_update(i - 1);
  }

  const Buffer& buffer(const Operand& o) const { return program_.buffers[o.buffer]; }

  // first_use_: the first instruction that reads what a start writes.
  void find_consumers() {
    for (InstrId i : program_.instrs.ids()) {
      bool start = start_of(program_.instrs[i]) != Start::none;
      if (start_of(program_.instrs[i]) == Start::gather) gathered_[program_.instrs[i].operands[1].buffer] = 1;
      for (size_t k = 0; k < program_.instrs[i].operands.size(); ++k) {
        if (start && k == 1) continue;
        InstrId& use = first_use_[program_.instrs[i].operands[k].buffer];
        use = std::min(use, i);
      }
    }
    // A gather of what another one gathers waits for the same consumer.
    for (InstrId i = program_.instrs.last(); i.exists(); --i) {
      const Instr& in = program_.instrs[i];
      if (start_of(in) != Start::gather) continue;
      InstrId& use = first_use_[in.operands[0].buffer];
      if (use == i && gathered_[in.operands[0].buffer]) use = first_use_[in.operands[1].buffer];
    }
    for (const Instr& in : program_.instrs) {
      if (start_of(in) != Start::load) continue;
      InstrId use = first_use_[in.operands[1].buffer];
      if (use != kNever) loaded_[use] += in.operands[1].bytes(program_.bound);
    }
  }

  // Earliest anchor that keeps data dependences and the order of the queue. Kernels, of which only those that
  // make codes move, have no other order than their data's.
  InstrId earliest(InstrId i) {
    const Instr& in = program_.instrs[i];
    InstrId bound = in.queue == Queue::compute ? InstrId(0) : queue_bound_[in.queue];
    for (InstrId writer : writers(i, in.operands[0])) {
      if (writer != i) bound = std::max(bound, after(writer));
    }
    return bound;
  }
  // Instructions so far that wrote bytes of the operand, which instruction i reads.
  const std::vector<InstrId>& writers(InstrId i, const Operand& o) {
    found_.clear();
    writers_[o.buffer].access(o.begin, o.begin + o.bytes(program_.bound), false, i, program_.instrs[i].queue,
                              found_);
    return found_;
  }
  // The first anchor behind an instruction that has its place.
  InstrId after(InstrId i) const { return anchor_[i] == i ? i + 1 : anchor_[i]; }

  void place(InstrId i, Start kind) {
    BufferId target = program_.instrs[i].operands[1].buffer;
    InstrId consumer = first_use_[target];
    std::vector<InstrId>& seen = consumers_[static_cast<size_t>(kind)];
    if (seen.empty() || consumer != seen.back()) seen.push_back(consumer);
    bool by_bytes =
        kind == Start::load && consumer != kNever && program_.instrs[consumer].queue == Queue::host;
    InstrId wanted = by_bytes ? within_ring(seen) : i;
    size_t ahead = kAhead[static_cast<size_t>(kind)];
    if (!by_bytes && seen.size() > ahead) wanted = look_back(seen[seen.size() - 1 - ahead]);
    wanted = std::max(std::min(wanted, i), earliest(i));
    if (program_.instrs[i].queue == Queue::comm)
      wanted = within_limits(i, wanted, program_.buffers[target].numel);
    anchor_[i] = std::min(wanted, i);
  }

  // Before the earliest consumer whose slots, those of the last consumer and all between fit in the ring; but
  // at least one ahead.
  InstrId within_ring(const std::vector<InstrId>& seen) const {
    size_t k = seen.size() - 1;
    int64_t bytes = loaded_[seen[k]];
    while (k > 0) {
      bytes += loaded_[seen[k - 1]];
      if (bytes > options_.load_bytes && k + 1 < seen.size()) break;
      --k;
    }
    return k == 0 && bytes <= options_.load_bytes ? InstrId(0) : look_back(seen[k]);
  }

  // Before an earlier consumer; when that is itself a start that moved, before its new place.
  InstrId look_back(InstrId consumer) const { return anchor_[consumer]; }

  // Latest anchor <= i from `wanted` on where the whole parameter fits under max_live; then it lives from
  // there.
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
      writers_[o.buffer].access(o.begin, o.begin + o.bytes(program_.bound), true, i, in.queue, found_);
    }
    queue_bound_[in.queue] = after(i);
  }

  void reorder() {
    IdVector<InstrId, InstrId> order(program_.instrs.size());
    for (InstrId i : order.ids()) order[i] = i;
    std::stable_sort(order.begin(), order.end(), [&](InstrId a, InstrId b) {
      if (anchor_[a] != anchor_[b]) return anchor_[a] < anchor_[b];
      return (anchor_[a] == a) < (anchor_[b] == b);
    });
    IdVector<InstrId, Instr> out;
    out.reserve(order.size());
    for (InstrId i : order) out.push_back(std::move(program_.instrs[i]));
    for (Segment& s : program_.segments) s.end = InstrId(0);
    program_.instrs = std::move(out);
    // A segment ends behind its last instruction that did not move; what moved ahead belongs to where it
    // runs.
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
  IdVector<BufferId, InstrId> first_use_;
  IdVector<BufferId, char> gathered_;      // a gather or what makes its codes writes it
  IdVector<InstrId, int64_t> loaded_;      // bytes that loads bring for it
  IdVector<BufferId, HazardMap> writers_;  // in the buffer's own bytes
  std::vector<InstrId> found_;
  IdVector<InstrId, int64_t> live_;
  PerQueue<InstrId> queue_bound_ = first_bounds();
  std::vector<InstrId> consumers_[kStarts];  // of the starts so far, each once
};

}  // namespace

void hoist(Program& program, const HoistOptions& options) {
  if (!program.instrs.empty()) Hoister(program, options).run();
}

}  // namespace ds
