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
using EventId = Id<struct EventTag>;  // of the host in delegate mode
using MicroId = Id<struct MicroTag>;  // a micro-step of a step

// File transfers move whole blocks, to the end of the last: buffers that files touch are padded.
inline constexpr int64_t kFileBlock = 4096;

// persistent: parameters, states, accumulators, inputs, losses: one layout per engine, the same in
// all programs. transient: lives from its first write to its last use; shares memory with others.
// One that is kept() shares it with those of other programs alone: a run finds what the run before
// has left there, unless another program has run in between.
enum class Residency : int8_t { persistent = 0, transient };

// What a buffer holds. `value`: of the graph, or what an instruction leaves for another.
enum class Holds : int8_t {
  value = 0,
  scalars,  // stands for the step's scalars (core/device/scalars.h): instructions that read or
            // write them declare it as an operand, so that waits order them
  input,
  loss,    // of the micro-steps of this rank, f32
  result,  // of evaluation or inference, for the caller
  param,
  master,
  state,  // of the optimizer
  grad,   // accumulated over micro-steps
  norms,  // of granules
  error,  // of quantization
  lease,  // parameters or gradients that a delegate host has
  cache   // keys and values of a text
};
const char* holds_name(Holds holds);

struct Buffer {
  std::string name;  // unique in the program; "%" is not part of it; for people only
  DType dtype = DS_DTYPE_NONE;
  int64_t numel = 0;  // at the bound of n
  Tier tier = Tier::device;
  Residency residency = Residency::transient;
  int64_t offset =
      -1;  // byte offset in its tier's persistent or transient arena; -1 before offsets
  Holds holds = Holds::value;
  int64_t bytes() const { return numel * size_of(dtype); }
  bool kept() const { return residency == Residency::transient && holds == Holds::cache; }
};

// A tensor inside a buffer. begin is in bytes. last marks the last use of a transient buffer ('!'
// in text): its memory is free when the instruction has finished.
struct Operand {
  BufferId buffer;
  int64_t begin = 0;
  TensorType type;
  Access access = Access::read;
  bool last = false;
  int64_t stride = 0;  // bytes by which begin grows with each round of a repeated instruction
  int64_t bytes(int64_t bound) const { return type.shape.numel(bound) * size_of(type.dtype); }
};

// What must be finished before an instruction starts: an earlier one, one of the round before (when
// both are repeated), or one of the run before. An instruction behind the repeated ones waits for
// their last round.
struct Wait {
  InstrId instr;
  bool run_before = false;
  bool round_before = false;
  bool operator==(const Wait&) const = default;
};

// Micro-steps in which an instruction runs: those whose number has the bits `value` under `mask`.
// In the others it does nothing.
struct MicroFilter {
  int64_t mask = 0, value = 0;
  bool takes(MicroId micro) const { return (micro.number() & mask) == value; }
  bool operator==(const MicroFilter&) const = default;
};

// One launch: a row of the table of instructions on operands, reads in the order of its inputs,
// then writes and updates in that of its outputs. all_gather reads a shard and writes the whole;
// reduce_scatter reads the whole and writes an f32 shard; all_to_all reads a block for, and writes
// one of, each rank.
struct Instr {
  const InstrDef* def = nullptr;
  Queue queue = Queue::compute;
  std::vector<Operand> operands;
  Attrs attrs;                                       // the kernel's
  std::shared_ptr<const CustomOp> custom = nullptr;  // of an operation by callback
  RankGroup group{0, 0};                             // of a collective: who takes part
  NodeId node;      // of the step's graph, that it computes; or none
  BucketId bucket;  // whose parameters it gathers, encodes or decodes
  EventId event;    // of a delegate host: which of its calls
  std::vector<ElementRun>
      runs;  // of some elements, in another order, or not in the run's step; empty: of all
  MicroId micro{
      0};  // micro-step it belongs to (selects n and the leaf); of a repeated one in round 0
  MicroFilter when;
  SegmentId segment{0};
  int32_t comm_order = -1;  // place in the rank's total order of collectives
  std::vector<Wait> waits;
};

// A part of a program.
enum class Phase : int8_t {
  init = 0,
  refresh,
  forward,
  backward,
  backward_last,  // of the last micro-step
  leases,         // what a delegate host does behind the last micro-step
  losses,
  update,
  eval,
  infer,
  decode,
  gather,  // a fragment of delegate mode, as the next
  reduce
};

const char* phase_name(Phase phase);

// A run of instructions: "forward[0]", "backward[1]", "update".
struct Segment {
  Phase phase = Phase::update;
  MicroId micro;   // of forward and backward; in round 0
  InstrId end{0};  // one past its last instruction
  std::string name() const;
};

// Bytes of one tier's arenas.
struct ArenaSizes {
  int64_t persistent = 0;
  int64_t transient = 0;
};

// Instructions [begin, end), whole segments, are issued `rounds` times in a run, one round after
// the other. In round r they belong to micro-steps r * micros later, and their operands begin r *
// stride bytes further on.
struct Repeat {
  InstrId begin{0}, end{0};
  int32_t rounds = 1;
  int32_t micros = 1;  // of a round
  bool has(InstrId i) const { return begin <= i && i < end; }
};

// A place in a run: before an instruction, in its round. Round is 0 outside the repeated
// instructions.
struct Position {
  InstrId instr{0};
  int32_t round = 0;
  Position() = default;
  Position(InstrId at, int32_t in_round = 0) : instr(at), round(in_round) {}
  bool operator==(const Position&) const = default;
};

// One rank's step: a line of instructions in one issue order, of which one stretch may be repeated.
struct Program {
  std::string name;
  int rank = 0;
  Mesh mesh;
  int64_t bound = 1;
  IdVector<BufferId, Buffer> buffers;  // the engine's persistent ones first
  IdVector<InstrId, Instr> instrs;
  IdVector<SegmentId, Segment> segments;
  ArenaSizes arenas[3];  // by Tier
  // Device and host are separate memories: compute and comm reach the first alone, host the second,
  // and copy both. Otherwise these queues reach both.
  bool separate = false;
  Repeat repeat;

  std::string print() const;
  Phase phase(const Instr& instr) const { return segments.at(instr.segment).phase; }

  Position end() const { return instrs.past(); }
  // Behind its instruction.
  Position next(const Position& at) const {
    InstrId behind = at.instr + 1;
    if (!repeat.has(at.instr)) return behind;
    if (behind < repeat.end) return {behind, at.round};
    return at.round + 1 < repeat.rounds ? Position(repeat.begin, at.round + 1) : Position(behind);
  }
  bool before(const Position& a, const Position& b) const {
    bool both = repeat.has(a.instr) && repeat.has(b.instr);
    return both && a.round != b.round ? a.round < b.round : a.instr < b.instr;
  }
  // Where the line of instructions from `at` on, in one round and before `end`, ends; at is before
  // end.
  InstrId line_end(const Position& at, const Position& end) const {
    if (!repeat.has(at.instr))
      return at.instr < repeat.begin ? std::min(repeat.begin, end.instr) : end.instr;
    return repeat.has(end.instr) && end.round == at.round ? end.instr : repeat.end;
  }
  // Behind the last instruction of a phase, of that micro-step when the phase has one in each.
  Position end_of(Phase phase, MicroId micro = none) const;
  int32_t rounds(InstrId instr) const { return repeat.has(instr) ? repeat.rounds : 1; }
  int64_t runs(InstrId instr) const;  // how often it runs in a run of the program
  MicroId micro(const Position& at) const {
    return instrs[at.instr].micro + at.round * repeat.micros;
  }
  bool takes_part(const Position& at) const { return instrs[at.instr].when.takes(micro(at)); }
};

// The operand as it is in a round.
Operand in_round(Operand operand, int32_t round);

// An instruction of the table on its queue.
Instr make_instr(const InstrDef& def, std::vector<Operand> operands, Attrs attrs = {},
                 MicroId micro = MicroId(0));
inline Instr make_instr(Op op, std::vector<Operand> operands, Attrs attrs = {},
                        MicroId micro = MicroId(0)) {
  return make_instr(instruction(op), std::move(operands), std::move(attrs), micro);
}

Program parse_program(std::string_view text);  // inverse of print()

// Throws DS_ERROR_INTERNAL naming instruction and buffer when the program is not legal. Before
// offsets: operands inside their buffers, written before read, no use after last. With offsets and
// waits also: arenas do not overlap wrongly, and every two conflicting accesses of physical bytes
// are ordered by queues and waits.
struct VerifyOptions {
  bool physical = true;  // offsets and waits are present
};
void verify(const Program& program, const VerifyOptions& options);

// Facts of the machine that plans depend on; measured or read at rank 0 and equal on all ranks.
struct Machine {
  double flops_per_second = 1e11;
  double device_bytes_per_second = 1e10;
  double link_bytes_per_second = 3e9;  // collectives, and host <-> device
  double file_bytes_per_second = 1e9;
  int ranks_per_node = 0;         // neighbours on one machine; 0: all ranks
  int ranks_per_memory_node = 0;  // neighbours on one memory node (NUMA) of a machine; 0: not known
  int64_t alignment = 64;         // of device and host buffers
  int64_t file_alignment = kFileBlock;  // of file extents and of host buffers that files touch
};

}  // namespace ds
