#include <algorithm>
#include <limits>
#include <numeric>

#include "core/base/error.h"
#include "core/program/hazards.h"
#include "passes/schedule.h"

namespace ds {
namespace {

constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

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
    std::iota(anchor_.begin(), anchor_.end(), 0);
    find_consumers();
  }

  void run() {
    for (size_t i = 0; i < program_.instrs.size(); ++i) {
      Start kind = start_of(program_.instrs[i]);
      if (begins_update(i)) queue_bound_[static_cast<size_t>(Queue::copy)] = static_cast<int64_t>(i);
      if (kind != Start::none) place(i, kind);
      note(i);
    }
    reorder();
  }

 private:
  Start start_of(const Instr& in) const {
    if (!in.def->starts_early || buffer(in.operands[1]).residency != Residency::transient) return Start::none;
    if (in.def->kind == Kind::copy) return Start::fetch;
    if (in.def->kind == Kind::file) return Start::load;
    return in.bucket >= 0 ? Start::gather : Start::none;
  }

  // The caller may edit gradients before the update, which renews their norms. So copies of either are made
  // within it.
  bool begins_update(size_t i) const {
    auto in_update = [&](size_t at) {
      auto segment = static_cast<size_t>(program_.instrs[at].segment);
      return segment < program_.segments.size() && program_.segments[segment].phase == Phase::update;
    };
    return i > 0 && in_update(i) && !in_update(i - 1);
  }

  const Buffer& buffer(const Operand& o) const { return program_.buffers[static_cast<size_t>(o.buffer)]; }

  // first_use_: the first instruction that reads what a start writes.
  void find_consumers() {
    for (size_t i = 0; i < program_.instrs.size(); ++i) {
      bool start = start_of(program_.instrs[i]) != Start::none;
      if (start_of(program_.instrs[i]) == Start::gather)
        gathered_[static_cast<size_t>(program_.instrs[i].operands[1].buffer)] = 1;
      for (size_t k = 0; k < program_.instrs[i].operands.size(); ++k) {
        if (start && k == 1) continue;
        int64_t& use = first_use_[static_cast<size_t>(program_.instrs[i].operands[k].buffer)];
        use = std::min(use, static_cast<int64_t>(i));
      }
    }
    // A gather of what another one gathers waits for the same consumer.
    for (size_t i = program_.instrs.size(); i-- > 0;) {
      const Instr& in = program_.instrs[i];
      if (start_of(in) != Start::gather) continue;
      int64_t& use = first_use_[static_cast<size_t>(in.operands[0].buffer)];
      if (use == static_cast<int64_t>(i) && gathered_[static_cast<size_t>(in.operands[0].buffer)])
        use = first_use_[static_cast<size_t>(in.operands[1].buffer)];
    }
    for (const Instr& in : program_.instrs) {
      if (start_of(in) != Start::load) continue;
      int64_t use = first_use_[static_cast<size_t>(in.operands[1].buffer)];
      if (use != kNever) loaded_[static_cast<size_t>(use)] += in.operands[1].bytes(program_.bound);
    }
  }

  // Earliest anchor that keeps data dependences and the order of the queue. Kernels, of which only those that
  // make codes move, have no other order than their data's.
  int64_t earliest(size_t i) {
    const Instr& in = program_.instrs[i];
    int64_t bound = in.queue == Queue::compute ? 0 : queue_bound_[static_cast<size_t>(in.queue)];
    for (InstrId writer : writers(i, in.operands[0])) {
      if (static_cast<size_t>(writer) != i) bound = std::max(bound, after(static_cast<size_t>(writer)));
    }
    return bound;
  }
  // Instructions so far that wrote bytes of the operand, which instruction i reads.
  const std::vector<InstrId>& writers(size_t i, const Operand& o) {
    found_.clear();
    writers_[static_cast<size_t>(o.buffer)].access(o.begin, o.begin + o.bytes(program_.bound), false,
                                                   static_cast<InstrId>(i), program_.instrs[i].queue, found_);
    return found_;
  }
  // The first anchor behind an instruction that has its place.
  int64_t after(size_t i) const {
    return anchor_[i] == static_cast<int64_t>(i) ? anchor_[i] + 1 : anchor_[i];
  }

  void place(size_t i, Start kind) {
    size_t target = static_cast<size_t>(program_.instrs[i].operands[1].buffer);
    int64_t consumer = first_use_[target];
    std::vector<int64_t>& seen = consumers_[static_cast<size_t>(kind)];
    if (seen.empty() || consumer != seen.back()) seen.push_back(consumer);
    bool by_bytes = kind == Start::load && consumer != kNever &&
                    program_.instrs[static_cast<size_t>(consumer)].queue == Queue::host;
    int64_t wanted = by_bytes ? within_ring(seen) : static_cast<int64_t>(i);
    size_t ahead = kAhead[static_cast<size_t>(kind)];
    if (!by_bytes && seen.size() > ahead) wanted = look_back(seen[seen.size() - 1 - ahead]);
    wanted = std::max(std::min(wanted, static_cast<int64_t>(i)), earliest(i));
    if (program_.instrs[i].queue == Queue::comm)
      wanted = within_limits(i, wanted, program_.buffers[target].numel);
    anchor_[i] = std::min(wanted, static_cast<int64_t>(i));
  }

  // Before the earliest consumer whose slots, those of the last consumer and all between fit in the ring; but
  // at least one ahead.
  int64_t within_ring(const std::vector<int64_t>& seen) const {
    size_t k = seen.size() - 1;
    int64_t bytes = loaded_[static_cast<size_t>(seen[k])];
    while (k > 0) {
      bytes += loaded_[static_cast<size_t>(seen[k - 1])];
      if (bytes > options_.load_bytes && k + 1 < seen.size()) break;
      --k;
    }
    return k == 0 && bytes <= options_.load_bytes ? 0 : look_back(seen[k]);
  }

  // Before an earlier consumer; when that is itself a start that moved, before its new place.
  int64_t look_back(int64_t consumer) const { return anchor_[static_cast<size_t>(consumer)]; }

  // Latest anchor <= i from `wanted` on where the whole parameter fits under max_live; then it lives from
  // there.
  int64_t within_limits(size_t i, int64_t wanted, int64_t numel) {
    if (numel > options_.prefetch_elements) return static_cast<int64_t>(i);
    int64_t at = static_cast<int64_t>(i);
    while (at > wanted && live_[static_cast<size_t>(at) - 1] + numel <= options_.max_live_elements) --at;
    for (size_t k = static_cast<size_t>(at); k < i; ++k) live_[k] += numel;
    return at;
  }

  void note(size_t i) {
    const Instr& in = program_.instrs[i];
    for (const Operand& o : in.operands) {
      if (o.access == Access::read) continue;
      found_.clear();
      writers_[static_cast<size_t>(o.buffer)].access(o.begin, o.begin + o.bytes(program_.bound), true,
                                                     static_cast<InstrId>(i), in.queue, found_);
    }
    queue_bound_[static_cast<size_t>(in.queue)] = after(i);
  }

  void reorder() {
    std::vector<size_t> order(program_.instrs.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
      if (anchor_[a] != anchor_[b]) return anchor_[a] < anchor_[b];
      return (anchor_[a] == static_cast<int64_t>(a)) < (anchor_[b] == static_cast<int64_t>(b));
    });
    std::vector<Instr> out;
    out.reserve(order.size());
    for (size_t i : order) out.push_back(std::move(program_.instrs[i]));
    for (Segment& s : program_.segments) s.end = 0;
    program_.instrs = std::move(out);
    // A segment ends behind its last instruction that did not move; what moved ahead belongs to where it
    // runs.
    std::vector<InstrId> ends(program_.segments.size(), 0);
    for (size_t at = 0; at < order.size(); ++at) {
      if (anchor_[order[at]] != static_cast<int64_t>(order[at])) continue;
      ends[static_cast<size_t>(program_.instrs[at].segment)] = static_cast<InstrId>(at + 1);
    }
    close_segments(ends);
  }

  void close_segments(const std::vector<InstrId>& ends) {
    InstrId previous = 0;
    for (size_t s = 0; s < program_.segments.size(); ++s) {
      previous = std::max(previous, ends[s]);
      program_.segments[s].end = previous;
    }
    if (!program_.segments.empty())
      program_.segments.back().end = static_cast<InstrId>(program_.instrs.size());
    size_t s = 0;
    for (size_t at = 0; at < program_.instrs.size(); ++at) {
      while (s + 1 < program_.segments.size() && program_.segments[s].end <= static_cast<InstrId>(at)) ++s;
      program_.instrs[at].segment = static_cast<int32_t>(s);
    }
  }

  Program& program_;
  const HoistOptions& options_;
  std::vector<int64_t> anchor_;
  std::vector<int64_t> first_use_;
  std::vector<char> gathered_;      // per buffer: a gather or what makes its codes writes it
  std::vector<int64_t> loaded_;     // per instruction: bytes that loads bring for it
  std::vector<HazardMap> writers_;  // per buffer, in its own bytes
  std::vector<InstrId> found_;
  std::vector<int64_t> live_;
  int64_t queue_bound_[kQueues] = {};
  std::vector<int64_t> consumers_[kStarts];  // of the starts so far, each once
};

}  // namespace

void hoist(Program& program, const HoistOptions& options) {
  if (!program.instrs.empty()) Hoister(program, options).run();
}

}  // namespace ds
