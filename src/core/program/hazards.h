#pragma once
#include <array>
#include <cstdint>
#include <map>
#include <vector>

#include "core/program/program.h"

namespace ds {

// The accesses so far to the bytes of one arena. For each new access it finds the earlier
// instructions that conflict: a read conflicts with the last write, and a write with the last write
// and with every read since.
class HazardMap {
 public:
  // Appends to `out` every earlier instruction that [begin, end) conflicts with, then records the
  // access.
  void access(int64_t begin, int64_t end, bool write, InstrId instr, Queue queue,
              std::vector<InstrId>& out);

 private:
  // Bytes with the same history. The key in pieces_ is the first byte.
  struct Piece {
    int64_t end = 0;
    InstrId write;
    // The latest read since the write, per queue.
    PerQueue<InstrId> reads;
  };
  void split(int64_t at);
  // Disjoint pieces by their first byte.
  std::map<int64_t, Piece> pieces_;
};

// The physical place of an operand: its arena (tier * 2 + residency) and its byte range. The range
// of a file transfer includes the rest of the last block.
struct PhysicalRange {
  int arena = 0;
  int64_t begin = 0;
  int64_t end = 0;
};
// Returns the physical place of an operand in a round.
PhysicalRange physical_range(const Program& program, const Instr& instr, const Operand& operand,
                             int32_t round = 0);

// For each queue, the number of instructions that are known to be finished.
using QueueClock = PerQueue<int32_t>;

// The order that queues and waits establish, as a vector clock per instruction. Instructions are
// entered in issue order, and a second run's instructions after those of the first.
class OrderTracker {
 public:
  explicit OrderTracker(size_t instrs) : clocks_(instrs), places_(instrs) {}
  // Starts instruction `id`. Before any wait, its clock contains only what its queue and the ends
  // of earlier runs imply.
  void begin(InstrId id, Queue queue);
  // Returns whether `earlier` is known to finish before the current instruction starts.
  bool covered(InstrId earlier) const;
  // Lets the current instruction also wait for `earlier`.
  void wait(InstrId earlier);
  // Records the clock of the current instruction.
  void finish();
  // Ends a run. All its instructions, except those of the write queue, finish before the
  // instructions that are entered later.
  void end_run();

 private:
  struct Place {
    Queue queue = Queue::compute;
    // Position in the queue, counted from 1.
    int32_t position = 0;
  };
  IdVector<InstrId, QueueClock> clocks_;
  IdVector<InstrId, Place> places_;
  PerQueue<InstrId> last_;
  QueueClock counts_{};
  InstrId current_;
  QueueClock now_{};
  // The instructions that the ends of runs so far show to be finished.
  QueueClock finished_{};
};

}  // namespace ds
