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

// The pieces of a program that a queue of the device can run as one graph (ADR 51). The object
// belongs to one executor and is used on its thread.
class Captures {
 public:
  // Submits one instruction to its queue, with its current addresses and extents.
  using CarryOut = std::function<void(const Position&, DeviceQueue&)>;
  // All references are borrowed. `extents` are the executor's extents by micro-step, which change
  // from run to run.
  Captures(const Program& program, const RankQueues& queues,
           const IdVector<MicroId, int64_t>& extents, CarryOut carry_out);

  // A sequence of instructions of one queue, from `first` to `last`.
  struct Piece {
    InstrId first, last;
    std::string label;
  };
  // Returns the piece that begins with the instruction, or null if no piece does. Before launching
  // the piece's graph, the caller must perform the waits of the instruction.
  const Piece* begins(InstrId i) const;
  // Returns the graph of the piece in a round, for a launch on its queue. Returns null if these
  // extents occur for the first time or the piece cannot be captured. The caller must then submit
  // the instructions one by one.
  const CapturedWork* work(const Piece& piece, int32_t round);
  // Begins a run. No work may be in flight, so graphs that were dropped in the run before are
  // destroyed.
  void begin_run();

 private:
  // One graph of a piece, for one set of extents.
  struct Graph {
    std::vector<int64_t> extents;
    // Null until these extents occur for the second time.
    std::unique_ptr<CapturedWork> work;
  };
  // A piece with its graphs.
  struct Own : Piece {
    DeviceQueue* queue = nullptr;
    std::vector<InstrId> instrs;
    // The micro-steps, in round 0, whose extents determine the launches.
    std::vector<MicroId> micros;
    // The graphs of each round, the most recently used first.
    std::vector<std::vector<Graph>> rounds;
  };

  // Appends the pieces among the instructions [begin, end) to pieces_.
  void find_pieces(InstrId begin, InstrId end);
  // Returns whether a piece may contain the instruction.
  bool can_take(InstrId i) const;
  // Returns whether the instruction waits for another queue.
  bool waits(InstrId i) const;
  // Returns whether the instruction belongs to another phase than the instructions of the piece.
  bool begins_phase(const Own& piece, InstrId i) const;
  DeviceQueue* queue_of(InstrId i) const { return queues_.of(program_.instrs[i].queue); }
  // Ends a piece, and keeps it if it is worth a graph.
  void close(Own& piece);
  // Returns the entry for the current extents. Sets `known` to whether the entry existed before
  // this call.
  Graph& graph_of(Own& piece, int32_t round, bool* known);
  // Captures the piece. Returns null if the capture fails.
  std::unique_ptr<CapturedWork> capture(const Own& piece, int32_t round);
  // Ends a capture that has failed.
  static void give_up(const Own& piece);

  const Program& program_;
  const RankQueues& queues_;
  const IdVector<MicroId, int64_t>& extents_;
  const CarryOut carry_out_;
  // For each instruction, whether another queue waits for it.
  std::vector<bool> records_;
  // All pieces, in the order in which find_pieces() has closed them.
  std::vector<Own> pieces_;
  // For each instruction, the index in pieces_ of the piece that begins with it, or -1.
  IdVector<InstrId, int32_t> begins_;
  // Graphs that were dropped for newer graphs but may still be in flight.
  std::vector<std::unique_ptr<CapturedWork>> given_up_;
  // Whether a capture has failed. No piece is used after that.
  bool off_ = false;
};

}  // namespace ds
