// Problem: for each access of physical bytes, find the earlier accesses that must have finished
// before it, and decide whether queues and waits ensure that they have. HazardMap keeps disjoint
// pieces of bytes with the same history: the last write, and for each queue the latest read since.
// One read per queue is enough, as a queue finishes in order. An access splits the pieces at its
// two ends and visits the pieces between them. Cost: O(log pieces + pieces visited). OrderTracker
// keeps a vector clock per instruction (Fidge 1988, Mattern 1989). Its component for a queue is the
// number of that queue's instructions known to be finished. An instruction starts with the clock of
// its predecessor in the queue and takes the maximum with the clock of each instruction that it
// waits for.
#include "core/program/hazards.h"

#include <algorithm>
#include <cstdint>

#include "core/base/error.h"
#include "core/base/round.h"

namespace ds {

void HazardMap::split(int64_t at) {
  auto it = pieces_.upper_bound(at);
  if (it == pieces_.begin()) return;
  --it;
  if (it->first == at || it->second.end <= at) return;
  Piece tail = it->second;
  it->second.end = at;
  pieces_.emplace(at, tail);
}

void HazardMap::access(int64_t begin, int64_t end, bool write, InstrId instr, Queue queue,
                       std::vector<InstrId>& out) {
  if (begin >= end) return;
  split(begin);
  split(end);
  auto it = pieces_.lower_bound(begin);
  int64_t at = begin;
  while (at < end) {
    // These bytes were never accessed before.
    if (it == pieces_.end() || it->first > at) {
      int64_t gap_end = it == pieces_.end() ? end : std::min(end, it->first);
      Piece fresh;
      fresh.end = gap_end;
      it = pieces_.emplace(at, fresh).first;
    }
    Piece& piece = it->second;
    if (piece.write.exists()) out.push_back(piece.write);
    if (write) {
      for (InstrId& read : piece.reads) {
        if (read.exists()) out.push_back(read);
        read = none;
      }
      piece.write = instr;
    } else {
      piece.reads[queue] = instr;
    }
    at = piece.end;
    ++it;
  }
}

PhysicalRange physical_range(const Program& program, const Instr& instr, const Operand& operand,
                             int32_t round) {
  const Buffer& buffer = program.buffers[operand.buffer];
  int64_t begin = buffer.offset + operand.begin + round * operand.stride;
  int64_t bytes = operand.bytes(program.bound);
  if (instr.queue == Queue::read || instr.queue == Queue::write)
    bytes = round_up(bytes, kFileBlock);
  return {static_cast<int>(buffer.tier) * 2 + static_cast<int>(buffer.residency), begin,
          begin + bytes};
}

void OrderTracker::begin(InstrId id, Queue queue) {
  current_ = id;
  now_ = last_[queue].exists() ? clocks_[last_[queue]] : QueueClock{};
  for (size_t k = 0; k < kQueues; ++k) now_[k] = std::max(now_[k], finished_[k]);
  // The queue works in order, so all of its earlier instructions have finished.
  now_[queue] = counts_[queue];
  places_[id] = {queue, ++counts_[queue]};
}

bool OrderTracker::covered(InstrId earlier) const {
  const Place& p = places_[earlier];
  return now_[p.queue] >= p.position;
}

void OrderTracker::wait(InstrId earlier) {
  const Place& p = places_[earlier];
  const QueueClock& theirs = clocks_[earlier];
  for (size_t q = 0; q < kQueues; ++q) now_[q] = std::max(now_[q], theirs[q]);
  now_[p.queue] = std::max(now_[p.queue], p.position);
}

void OrderTracker::end_run() {
  QueueClock all = counts_;
  all[Queue::write] = finished_[Queue::write];
  // Saves may go on during the next run. A save is known to be finished only if a finished
  // instruction has waited for it.
  for (InstrId last : last_) {
    if (!last.exists() || places_[last].queue == Queue::write) continue;
    for (size_t q = 0; q < kQueues; ++q) all[q] = std::max(all[q], clocks_[last][q]);
  }
  finished_ = all;
}

void OrderTracker::finish() {
  clocks_[current_] = now_;
  last_[places_[current_].queue] = current_;
}

}  // namespace ds
