// Problem. A launch costs the host microseconds, and a step has thousands of launches that are the
// same in every step. A driver can record a sequence of launches as a graph and launch the graph
// with one call.
//
// Pieces. A piece is a sequence of instructions of one queue, in issue order and as long as
// possible, such that only the first waits for other queues and other queues wait only for the
// last. No other queue can observe when the instructions in between are submitted, so the whole
// piece is submitted at its first instruction, even if instructions of other queues come in
// between. Collectives, calls of a host program and file transfers are not part of pieces. A piece
// ends with its phase, because a host may call forward, backward and step one by one, and each call
// must issue exactly its own instructions.
//
// Invariant. Every launch of a graph uses the arguments of its capture. Values that differ from
// step to step reach kernels through the step's scalars in the device's memory: seed, counts of
// steps and updates, learning rate, loss scale, skip. Everything else in a launch is fixed by
// instruction and round (addresses, leaf, runs) or is part of the key (extents). An update that
// reads its group's scalars from the host is not part of a piece. Three kinds of run use no graphs:
// runs of a rank without data, which submits other work; traced runs; and runs that check the
// result of each instruction.
//
// Keys. Each piece has at most kGraphs graphs in a round, by extents. If there are more, the least
// recently used graph is dropped. When extents occur for the first time, the instructions are
// submitted one by one. So one-time work of a library is not captured, and extents that occur only
// once need no graph.
//
// Errors. If a capture fails, the work has not been done, so the piece is submitted without a
// graph, and graphs are no longer used. Cost: see ADR 51.
#include "exec/captures.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstddef>
#include <exception>
#include <map>
#include <utility>

#include "core/base/contains.h"
#include "core/base/element_run.h"
#include "core/base/log.h"
#include "core/program/instruction.h"
#include "exec/queues.h"

namespace ds {
namespace {

// The largest number of graphs of a piece in a round.
constexpr size_t kGraphs = 8;

// Returns whether the shape of an operand depends on n.
bool has_extent(const Instr& in) {
  return std::ranges::any_of(in.operands, [](const Operand& o) { return o.type.shape.symbolic(); });
}

}  // namespace

// No piece crosses the beginning or the end of the repeated stretch, because a piece has graphs for
// each round, and only this stretch has several rounds.
Captures::Captures(const Program& program, const RankQueues& queues,
                   const IdVector<MicroId, int64_t>& extents, CarryOut carry_out)
    : program_(program),
      queues_(queues),
      extents_(extents),
      carry_out_(std::move(carry_out)),
      records_(program.instrs.size()) {
  for (InstrId i : program.instrs.ids()) {
    for (const Wait& wait : program.instrs[i].waits) {
      if (queue_of(wait.instr) != queue_of(i)) records_[wait.instr.index()] = true;
    }
  }
  begins_.assign(program.instrs.size(), -1);
  const Repeat& repeat = program.repeat;
  find_pieces(InstrId(0), repeat.begin);
  find_pieces(repeat.begin, repeat.end);
  find_pieces(repeat.end, program.instrs.past());
}

bool Captures::waits(InstrId i) const {
  const auto& all = program_.instrs[i].waits;
  return std::ranges::any_of(all, [&](const Wait& w) { return queue_of(w.instr) != queue_of(i); });
}

bool Captures::can_take(InstrId i) const {
  const Instr& in = program_.instrs[i];
  const Kind kind = in.def->kind;
  if (kind == Kind::collective || kind == Kind::file || kind == Kind::event) return false;
  return kind != Kind::update || std::ranges::all_of(in.runs, [](const ElementRun& run) {
           return run.group == 0 && !run.skips;
         });
}

bool Captures::begins_phase(const Own& piece, InstrId i) const {
  return !piece.instrs.empty() &&
         program_.phase(program_.instrs[piece.instrs.back()]) != program_.phase(program_.instrs[i]);
}

// Each queue has at most one open piece. An instruction closes it if it must begin another piece or
// cannot be part of one, or if other queues wait for it.
void Captures::find_pieces(InstrId begin, InstrId end) {
  std::map<DeviceQueue*, Own> open;
  for (InstrId i = begin; i < end; ++i) {
    DeviceQueue* queue = queue_of(i);
    if (!queue || !queue->captures()) continue;
    Own& piece = open[queue];
    const bool takes = can_take(i);
    if (!takes || waits(i) || begins_phase(piece, i)) close(piece);
    if (!takes) continue;
    piece.queue = queue;
    piece.instrs.push_back(i);
    const MicroId micro = program_.instrs[i].micro;
    if (has_extent(program_.instrs[i]) && !contains(piece.micros, micro))
      piece.micros.push_back(micro);
    if (records_[i.index()]) close(piece);
  }
  for (auto& [queue, piece] : open) close(piece);
}

// Keeps a piece of two or more instructions, because a single instruction is not worth a graph.
void Captures::close(Own& piece) {
  if (piece.instrs.size() > 1) {
    piece.first = piece.instrs.front();
    piece.last = piece.instrs.back();
    piece.label = fmt::format("{} {} to {} {}", program_.instrs[piece.first].def->name, piece.first,
                              program_.instrs[piece.last].def->name, piece.last);
    piece.rounds.resize(static_cast<size_t>(program_.rounds(piece.first)));
    begins_[piece.first] = static_cast<int32_t>(pieces_.size());
    pieces_.push_back(std::move(piece));
  }
  piece = Own();
}

const Captures::Piece* Captures::begins(InstrId i) const {
  return off_ || begins_[i] < 0 ? nullptr : &pieces_[static_cast<size_t>(begins_[i])];
}

void Captures::begin_run() { given_up_.clear(); }

// The entries of a round are ordered by their last use. A graph that is dropped may still be in
// flight, so it lives until the next run begins.
Captures::Graph& Captures::graph_of(Own& piece, int32_t round, bool* known) {
  std::vector<int64_t> extents;
  for (MicroId micro : piece.micros)
    extents.push_back(extents_[micro + round * program_.repeat.micros]);
  std::vector<Graph>& graphs = piece.rounds[static_cast<size_t>(round)];
  auto found = std::ranges::find_if(graphs, [&](const Graph& g) { return g.extents == extents; });
  *known = found != graphs.end();
  if (*known) {
    std::rotate(graphs.begin(), found, found + 1);
    return graphs.front();
  }
  if (graphs.size() == kGraphs) {
    if (graphs.back().work) given_up_.push_back(std::move(graphs.back().work));
    graphs.pop_back();
  }
  graphs.insert(graphs.begin(), Graph{std::move(extents), nullptr});
  return graphs.front();
}

const CapturedWork* Captures::work(const Piece& piece, int32_t round) {
  Own& own = pieces_[static_cast<size_t>(begins_[piece.first])];
  bool known = false;
  Graph& graph = graph_of(own, round, &known);
  if (known && !graph.work) graph.work = capture(own, round);
  return graph.work.get();
}

// After a failed capture, graphs are turned off and a warning is logged. An error of the device
// itself is thrown again.
std::unique_ptr<CapturedWork> Captures::capture(const Own& piece, int32_t round) {
  bool begun = false;
  try {
    piece.queue->begin_capture();
    begun = true;
    for (InstrId i : piece.instrs) {
      if (program_.takes_part({i, round})) carry_out_({i, round}, *piece.queue);
    }
    begun = false;
    return piece.queue->end_capture();
  } catch (const std::exception& error) {
    if (begun) give_up(piece);
    if (queues_.device().faults().failed()) throw;
    off_ = true;
    log_line(LogLevel::warning,
             fmt::format("rank {}, {}: launches are no longer captured as graphs, because {} could "
                         "not be captured: {}",
                         program_.rank, program_.name, piece.label, error.what()));
    return nullptr;
  }
}

// The caller handles the error of the capture, so an error from ending the capture is ignored.
void Captures::give_up(const Own& piece) {
  try {
    piece.queue->end_capture();
  } catch (const std::exception&) {
    return;
  }
}

}  // namespace ds
