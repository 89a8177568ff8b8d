#pragma once
#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/attrs.h"
#include "core/base/dtype.h"
#include "core/base/element_run.h"
#include "core/base/shape.h"
#include "core/config/config.h"
#include "core/graph/custom_op.h"
#include "core/graph/graph.h"
#include "core/program/granules.h"
#include "core/program/instruction.h"
#include "core/program/mesh.h"

namespace ds {

using BufferId = Id<struct BufferTag>;
using InstrId = Id<struct InstrTag>;
using SegmentId = Id<struct SegmentTag>;
// A call of the host in delegate mode.
using EventId = Id<struct EventTag>;
// A micro-step of a step.
using MicroId = Id<struct MicroTag>;

// The size in bytes of the blocks in which data moves between files and memory. Buffers that are
// transferred are padded to the end of their last block.
inline constexpr int64_t kFileBlock = 4096;

// How long a buffer lives. Persistent buffers (parameters, states, accumulators, inputs and losses)
// have one layout per engine, the same in all programs. A transient buffer lives from its first
// write to its last use and shares memory with other buffers. A transient buffer that is kept()
// shares memory only with buffers of other programs: each run finds the contents that the previous
// run left, unless another program ran in between.
enum class Residency : int8_t { persistent = 0, transient };

// The contents of a buffer. A `value` is a value of the graph, or an intermediate result that one
// instruction passes to another.
enum class Holds : int8_t {
  value = 0,
  // A stand-in for the step's scalars (core/device/scalars.h). Instructions that read or write the
  // scalars have it as an operand, so that waits order them.
  scalars,
  input,
  // The losses of this rank's micro-steps, f32.
  loss,
  // A result of evaluation or inference, for the caller.
  result,
  param,
  master,
  // State of the optimizer.
  state,
  // Gradients, accumulated over micro-steps.
  grad,
  // Sums of squares of granules.
  norms,
  // Errors of quantization and of compression.
  error,
  // Parameters or gradients that are leased to a delegate host.
  lease,
  // Keys and values of attention, kept while a text is generated.
  cache
};
const char* holds_name(Holds holds);

struct Buffer {
  // The name of the buffer, unique in the program, without "%". Only texts and messages use it.
  std::string name;
  DType dtype = DS_DTYPE_NONE;
  // The number of elements if n is at its bound.
  int64_t numel = 0;
  Tier tier = Tier::device;
  Residency residency = Residency::transient;
  // Byte offset in the persistent or transient arena of its tier; -1 until offsets are chosen.
  int64_t offset = -1;
  Holds holds = Holds::value;
  int64_t bytes() const { return numel * size_of(dtype); }
  bool kept() const { return residency == Residency::transient && holds == Holds::cache; }
};

// A tensor inside a buffer. `begin` is the offset in the buffer, in bytes. `last` marks the last
// use of a transient buffer ('!' in text): the buffer's memory is free when the instruction has
// finished.
struct Operand {
  BufferId buffer;
  int64_t begin = 0;
  TensorType type;
  Access access = Access::read;
  bool last = false;
  // Bytes by which begin grows with each round of a repeated instruction.
  int64_t stride = 0;
  int64_t bytes(int64_t bound) const { return type.shape.numel(bound) * size_of(type.dtype); }
};

// An instruction that must have finished before the waiting instruction starts: an earlier
// instruction of the run, an instruction of the round before (if both are repeated), or an
// instruction of the run before. From outside the repeated stretch, a wait for an instruction
// inside it means its last round.
struct Wait {
  InstrId instr;
  bool run_before = false;
  bool round_before = false;
  bool operator==(const Wait&) const = default;
};

// The micro-steps in which an instruction runs: those with (index & mask) == value. In other
// micro-steps the instruction does nothing.
struct MicroFilter {
  int64_t mask = 0, value = 0;
  bool takes(MicroId micro) const { return (micro.number() & mask) == value; }
  bool operator==(const MicroFilter&) const = default;
};

// One launch: a row of the table of instructions applied to operands. Operands that are read come
// first, then operands that are written or updated, both in the order of the row. all_gather reads
// a shard and writes the whole tensor. reduce_scatter reads the whole tensor and writes an f32
// shard. all_to_all reads one block for each rank and writes one block from each rank.
struct Instr {
  const InstrDef* def = nullptr;
  Queue queue = Queue::compute;
  std::vector<Operand> operands;
  // The attributes of the kernel.
  Attrs attrs;
  // The callback of a custom operation.
  std::shared_ptr<const CustomOp> custom = nullptr;
  // The ranks that take part in a collective.
  RankGroup group{0, 0};
  // The node of the step's graph that the instruction computes, or `none`.
  NodeId node;
  // The bucket whose parameters the instruction gathers, encodes or decodes.
  BucketId bucket;
  // The call of a delegate host that the instruction represents.
  EventId event;
  // The element ranges that this launch covers, in order, each with its own step count. If empty,
  // it covers all elements.
  std::vector<ElementRun> runs;
  // The micro-step, which determines n and the leaf. For a repeated instruction, the micro-step of
  // round 0.
  MicroId micro{0};
  MicroFilter when;
  SegmentId segment{0};
  // The position in the rank's total order of collectives, or -1 if it has none.
  int32_t comm_order = -1;
  std::vector<Wait> waits;
};

// The kinds of segments.
enum class Phase : int8_t {
  init = 0,
  refresh,
  forward,
  backward,
  // The backward pass of the last micro-step.
  backward_last,
  // The calls of a delegate host after the last micro-step.
  leases,
  losses,
  update,
  eval,
  infer,
  decode,
  // Fragments of delegate mode: gather, reduce.
  gather,
  reduce
};

const char* phase_name(Phase phase);

// A named stretch of instructions: "forward[0]", "backward[1]", "update".
struct Segment {
  Phase phase = Phase::update;
  // The micro-step of a forward or backward segment. In a repeated stretch, the micro-step of round
  // 0.
  MicroId micro;
  // One past the last instruction of the segment.
  InstrId end{0};
  std::string name() const;
};

// The sizes of the arenas of one tier, in bytes.
struct ArenaSizes {
  int64_t persistent = 0;
  int64_t transient = 0;
};

// The repeated stretch of a program: instructions [begin, end), which are whole segments. They are
// issued `rounds` times in a run, one round after the other. In round r, an instruction belongs to
// the micro-step that is r * micros later than in round 0, and its operands begin r * stride bytes
// later.
struct Repeat {
  InstrId begin{0}, end{0};
  int32_t rounds = 1;
  // Micro-steps per round.
  int32_t micros = 1;
  bool has(InstrId i) const { return begin <= i && i < end; }
};

// A point in a run of the program: directly before an instruction in one of its rounds. The round
// is 0 outside the repeated stretch.
struct Position {
  InstrId instr{0};
  int32_t round = 0;
  Position() = default;
  Position(InstrId at, int32_t in_round = 0) : instr(at), round(in_round) {}
  bool operator==(const Position&) const = default;
};

// One rank's step, or another unit of its work: instructions in issue order, with at most one
// repeated stretch.
struct Program {
  std::string name;
  int rank = 0;
  Mesh mesh;
  int64_t bound = 1;
  // The engine's persistent buffers come first.
  IdVector<BufferId, Buffer> buffers;
  IdVector<InstrId, Instr> instrs;
  IdVector<SegmentId, Segment> segments;
  // The sizes of the arenas, indexed by Tier.
  ArenaSizes arenas[3];
  // Whether device and host are separate memories. If so, compute and comm can access only device
  // memory, host can access only host memory, and copy can access both. If not, all of these queues
  // can access both.
  bool separate = false;
  Repeat repeat;

  std::string print() const;
  Phase phase(const Instr& instr) const { return segments.at(instr.segment).phase; }

  Position end() const { return instrs.past(); }
  // Returns the position after an instruction, which may be the start of the next round.
  Position next(const Position& at) const {
    InstrId behind = at.instr + 1;
    if (!repeat.has(at.instr)) return behind;
    if (behind < repeat.end) return {behind, at.round};
    return at.round + 1 < repeat.rounds ? Position(repeat.begin, at.round + 1) : Position(behind);
  }
  // Returns whether a run reaches `a` before `b`.
  bool before(const Position& a, const Position& b) const {
    bool both = repeat.has(a.instr) && repeat.has(b.instr);
    return both && a.round != b.round ? a.round < b.round : a.instr < b.instr;
  }
  // Returns the end of the longest stretch of instructions that starts at `at`, stays in one round
  // and does not pass `end`. `at` must be before `end`.
  InstrId line_end(const Position& at, const Position& end) const {
    if (!repeat.has(at.instr))
      return at.instr < repeat.begin ? std::min(repeat.begin, end.instr) : end.instr;
    return repeat.has(end.instr) && end.round == at.round ? end.instr : repeat.end;
  }
  // Returns the position after the last instruction of a phase. If the phase occurs in every
  // micro-step, `micro` selects the occurrence.
  Position end_of(Phase phase, MicroId micro = none) const;
  int32_t rounds(InstrId instr) const { return repeat.has(instr) ? repeat.rounds : 1; }
  // Returns how many times one run of the program executes an instruction.
  int64_t runs(InstrId instr) const;
  MicroId micro(const Position& at) const {
    return instrs[at.instr].micro + at.round * repeat.micros;
  }
  // Returns whether an instruction runs in a round (MicroFilter).
  bool takes_part(const Position& at) const { return instrs[at.instr].when.takes(micro(at)); }
};

// Returns the operand of an instruction in a given round of the repeated stretch.
Operand in_round(Operand operand, int32_t round);

// Returns an instruction of this row, on the row's queue.
Instr make_instr(const InstrDef& def, std::vector<Operand> operands, Attrs attrs = {},
                 MicroId micro = MicroId(0));
inline Instr make_instr(Op op, std::vector<Operand> operands, Attrs attrs = {},
                        MicroId micro = MicroId(0)) {
  return make_instr(instruction(op), std::move(operands), std::move(attrs), micro);
}

// Parses the output of Program::print().
Program parse_program(std::string_view text);

// Options of verify().
struct VerifyOptions {
  // Whether offsets and waits have been chosen and are to be checked.
  bool physical = true;
};
// Throws DS_ERROR_INTERNAL, naming instruction and buffer, if the program is not legal. It checks
// that instructions fit their rows and queues, that operands are inside their buffers, and that
// transient buffers are written before they are read and not used after their last use. With
// `physical`, it also checks that buffers are inside their arenas, that a kept buffer shares bytes
// with no other, and that queues and waits order every two conflicting accesses of physical bytes.
void verify(const Program& program, const VerifyOptions& options);

// Facts about a machine that plans depend on, measured or read on rank 0 and equal on all ranks.
struct Machine {
  double flops_per_second = 1e11;
  double device_bytes_per_second = 1e10;
  // The rate of collectives and of transfers between host and device.
  double link_bytes_per_second = 3e9;
  double file_bytes_per_second = 1e9;
  // The number of neighbouring ranks on one machine. If it is 0, all ranks are treated as being on
  // one machine.
  int ranks_per_node = 0;
  // The number of neighbouring ranks on one memory node (NUMA) of a machine, or 0 if unknown.
  int ranks_per_memory_node = 0;
  // The alignment of device and host buffers, in bytes.
  int64_t alignment = 64;
  // The alignment of file extents and of host buffers that are transferred to or from files, in
  // bytes.
  int64_t file_alignment = kFileBlock;
};

}  // namespace ds
