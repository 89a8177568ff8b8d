#include "exec/marks.h"

#include <algorithm>
#include <cstddef>

namespace ds {
namespace {

// The queues that can have marks. Reads and writes run on lanes, which have no marks.
constexpr Queue kMarked[] = {Queue::compute, Queue::host, Queue::comm, Queue::copy};

}  // namespace

void Marks::begin() {
  std::lock_guard lock(mutex_);
  for (Queue queue : kMarked) {
    if (!of(queue)) continue;
    logs_[queue] = {};
    queues_.of(queue)->unmark();
  }
}

// If the log has kMost entries, finished instructions are dropped, so that the log of a long run
// stays small.
void Marks::give(Queue queue, const Position& at) {
  constexpr size_t kMost = 4096;
  std::lock_guard lock(mutex_);
  Log& log = logs_[queue];
  if (log.given.size() >= kMost) {
    const uint32_t done = queues_.of(queue)->marked() - log.finished;
    log.given.erase(log.given.begin(), log.given.begin() + done);
    log.finished += done;
  }
  log.given.push_back({at});
}

// The value of a mark is the number of instructions noted so far in the run.
void Marks::mark(Queue queue) {
  uint32_t number = 0;
  {
    std::lock_guard lock(mutex_);
    Log& log = logs_[queue];
    log.given.back().marked = true;
    number = log.finished + static_cast<uint32_t>(log.given.size());
  }
  queues_.of(queue)->mark(number);
}

// The value of a mark counts all instructions of the run, including those that were dropped.
std::vector<Marks::Given>::const_iterator Marks::next(Queue queue) const {
  const Log& log = logs_[queue];
  return log.given.begin() + (queues_.of(queue)->marked() - log.finished);
}

bool Marks::unfinished(Queue queue, InstrId instr) const {
  std::lock_guard lock(mutex_);
  return of(queue) && std::any_of(next(queue), logs_[queue].given.end(),
                                  [&](const Given& given) { return given.at.instr == instr; });
}

// A queue that has finished all noted instructions has no interval.
std::vector<Marks::Interval> Marks::unfinished() const {
  std::vector<Interval> out;
  std::lock_guard lock(mutex_);
  for (Queue queue : kMarked) {
    if (!of(queue)) continue;
    const auto first = next(queue), end = logs_[queue].given.end();
    if (first == end) continue;
    auto last = std::find_if(first, end, [](const Given& given) { return given.marked; });
    if (last == end) --last;
    out.push_back({queue, first->at, last->at});
  }
  return out;
}

}  // namespace ds
