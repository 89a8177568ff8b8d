#pragma once
#include <array>
#include <cstdint>
#include <map>
#include <vector>

#include "core/program/program.h"

namespace ds {

// Which earlier instructions an access of physical bytes conflicts with: reads with the last write;
// writes with the last write and every read since. Bytes are those of one arena of one rank.
class HazardMap {
 public:
  // Appends to `out` every earlier instruction that [begin, end) conflicts with, then records the
  // access.
  void access(int64_t begin, int64_t end, bool write, InstrId instr, Queue queue,
              std::vector<InstrId>& out);

 private:
  struct Piece {
    int64_t end = 0;
    InstrId write;
    PerQueue<InstrId> reads;  // latest read since the write, per queue
  };
  void split(int64_t at);
  std::map<int64_t, Piece> pieces_;  // by begin; disjoint
};

// Physical place of an operand of an instruction: arena number (tier * 2 + residency) and byte
// range, with the rest of the last block of a file transfer.
struct PhysicalRange {
  int arena = 0;
  int64_t begin = 0;
  int64_t end = 0;
};
PhysicalRange physical_range(const Program& program, const Instr& instr, const Operand& operand,
                             int32_t round = 0);

// For each queue the number of its instructions known to be finished.
using QueueClock = PerQueue<int32_t>;

// Follows the order that queues and waits give. Instructions are entered in issue order, those of a
// second run behind those of the first.
class OrderTracker {
 public:
  explicit OrderTracker(size_t instrs) : clocks_(instrs), places_(instrs) {}
  // Starts instruction `id`: clock before any wait.
  void begin(InstrId id, Queue queue);
  bool covered(
      InstrId earlier) const;  // is `earlier` finished before the current instruction starts?
  void wait(InstrId earlier);  // the current instruction also waits for `earlier`
  void finish();
  // A run ends: everything but the write queue has finished before what is entered from here on.
  void end_run();

 private:
  struct Place {
    Queue queue = Queue::compute;
    int32_t position = 0;  // 1-based in its queue
  };
  IdVector<InstrId, QueueClock> clocks_;
  IdVector<InstrId, Place> places_;
  PerQueue<InstrId> last_;
  QueueClock counts_{};
  InstrId current_;
  QueueClock now_{};
  QueueClock finished_{};  // by the ends of runs
};

}  // namespace ds
