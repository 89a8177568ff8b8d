#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/base/ids.h"
#include "core/device/device.h"
#include "core/program/program.h"
#include "exec/queues.h"

namespace ds {

// Pieces of a program that a queue of the device takes as a whole (ADR 51). Of one executor, on its
// thread.
class Captures {
 public:
  // What gives one instruction to its queue, with everything that it depends on as it is now.
  using CarryOut = std::function<void(const Position&, DeviceQueue&)>;
  // Extents of micro-steps are those of the executor, and change from run to run.
  Captures(const Program& program, const RankQueues& queues,
           const IdVector<MicroId, int64_t>& extents, CarryOut carry_out);

  struct Piece {
    InstrId first, last;
    std::string label;
  };
  // That the instruction begins; null: none. What the first one waits for has to be waited for
  // before.
  const Piece* begins(InstrId i) const;
  // The piece as one launch of its queue. Null: its instructions are to be given one by one,
  // because they come for the first time or cannot be captured.
  const CapturedWork* work(const Piece& piece, int32_t round);
  void begin_run();  // nothing is in flight: graphs that were given up end

 private:
  struct Graph {
    std::vector<int64_t> extents;
    std::unique_ptr<CapturedWork> work;  // null: it has been seen once
  };
  struct Own : Piece {
    DeviceQueue* queue = nullptr;
    std::vector<InstrId> instrs;
    std::vector<MicroId> micros;             // whose extents its launches have, in round 0
    std::vector<std::vector<Graph>> rounds;  // in each round; what was used last comes first
  };

  void find_pieces(InstrId begin, InstrId end);
  bool can_take(InstrId i) const;
  bool waits(InstrId i) const;
  bool begins_phase(const Own& piece,
                    InstrId i) const;  // another than the piece's instructions are of
  DeviceQueue* queue_of(InstrId i) const { return queues_.of(program_.instrs[i].queue); }
  void close(Own& piece);
  Graph& graph_of(Own& piece, int32_t round, bool* known);
  std::unique_ptr<CapturedWork> capture(const Own& piece, int32_t round);
  static void give_up(const Own& piece);

  const Program& program_;
  const RankQueues& queues_;
  const IdVector<MicroId, int64_t>& extents_;
  const CarryOut carry_out_;
  std::vector<bool> records_;          // by instruction: other queues wait for it
  std::vector<Own> pieces_;            // in the order of their first instructions
  IdVector<InstrId, int32_t> begins_;  // the piece, or -1
  std::vector<std::unique_ptr<CapturedWork>> given_up_;
  bool off_ = false;  // a capture went wrong
};

}  // namespace ds
