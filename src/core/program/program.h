#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/attrs.h"
#include "core/base/dtype.h"
#include "core/base/shape.h"
#include "core/config/config.h"
#include "core/graph/graph.h"

namespace ds {

using BufferId = int32_t;
using InstrId = int32_t;

// The in-order queues of one rank. Instructions of one queue start and finish in issue order; across queues
// only waits order them. A run of a program starts when all queues but `write` have finished the run before:
// saves may go on into it. compute: device kernels; host: kernels on host memory; comm: collectives; copy:
// device <-> host; read, write: file <-> host.
enum class Queue : int8_t { compute = 0, host, comm, copy, read, write };
inline constexpr int kQueues = 6;
const char* queue_name(Queue queue);

// File transfers move whole blocks, to the end of the last: buffers that files touch are padded.
inline constexpr int64_t kFileBlock = 4096;

// persistent: parameters, states, accumulators, inputs, losses: one layout per engine, the same in all
// programs. transient: lives from its first write to its last use; shares memory with others.
enum class Residency : int8_t { persistent = 0, transient };

struct Buffer {
  std::string name;  // unique in the program; "%" is not part of it
  DType dtype = DS_DTYPE_NONE;
  int64_t numel = 0;  // at the bound of n
  Tier tier = Tier::device;
  Residency residency = Residency::transient;
  int64_t offset = -1;  // byte offset in its tier's persistent or transient arena; -1 before offsets
  int64_t bytes() const { return numel * size_of(dtype); }
};

enum class Access : int8_t { read = 0, write, update };  // update: read and written

// Name of the persistent buffer that stands for the step's scalars (core/device/scalars.h): instructions that
// read or write them declare it as an operand, so that waits order them; kernels reach the scalars by
// pointer, not as a view.
inline constexpr const char* kScalarBlock = "scalars";
// The one with the losses of this rank's micro-steps, f32.
inline constexpr const char* kLossBuffer = "loss";

// A tensor inside a buffer. begin is in bytes. last marks the last use of a transient buffer ('!' in text):
// its memory is free when the instruction has finished.
struct Operand {
  BufferId buffer = -1;
  int64_t begin = 0;
  TensorType type;
  Access access = Access::read;
  bool last = false;
  int64_t bytes(int64_t bound) const { return type.shape.numel(bound) * size_of(type.dtype); }
};

// One launch. operands: reads in the op's input order, then writes and updates in its output order. op is a
// graph op, an instruction of docs/reference/ops.md, or one of
//   comm: all_gather (read shard, write full), reduce_scatter (read full, write f32 shard), all_reduce,
//   all_to_all (a block for, and one of, each rank)
//   copy: fetch (host -> device), store (device -> host)     read/write: load (file -> host), save (host ->
//   file)     host: lease, grad (delegate: the host program runs here), clip (norm -> scalars), losses
struct Instr {
  Queue queue = Queue::compute;
  std::string op;
  std::vector<Operand> operands;
  Attrs attrs;
  int32_t micro = 0;        // micro-step it belongs to (selects n and the leaf)
  int32_t segment = 0;      // index in Program::segments
  int32_t comm_order = -1;  // place in the rank's total order of collectives
  std::vector<InstrId>
      waits;  // earlier ones; k < 0: instruction (number of instructions) + k of the previous run
};

// A named run of instructions: "forward[0]", "backward[1]", "update".
struct Segment {
  std::string name;
  InstrId end = 0;  // one past its last instruction
};

// Bytes of one tier's arenas.
struct ArenaSizes {
  int64_t persistent = 0;
  int64_t transient = 0;
};

// One rank's step: a straight line, one issue order, no branches.
struct Program {
  std::string name;
  int rank = 0;
  int world = 1;
  int64_t bound = 1;
  std::vector<Buffer> buffers;  // the engine's persistent ones first
  std::vector<Instr> instrs;
  std::vector<Segment> segments;
  ArenaSizes arenas[3];  // by Tier

  std::string print() const;
};

Program parse_program(std::string_view text);  // inverse of print()

// Throws DS_ERROR_INTERNAL naming instruction and buffer when the program is not legal. Before offsets:
// operands inside their buffers, written before read, no use after last. With offsets and waits also: arenas
// do not overlap wrongly, and every two conflicting accesses of physical bytes are ordered by queues and
// waits.
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
  int ranks_per_node = 0;               // neighbours on one machine; 0: all ranks
  int64_t alignment = 64;               // of device and host buffers
  int64_t file_alignment = kFileBlock;  // of file extents and of host buffers that files touch
};

}  // namespace ds
