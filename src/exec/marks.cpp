#include "exec/marks.h"

#include <algorithm>
#include <cstddef>

namespace ds {
namespace {

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

std::vector<Marks::Interval> Marks::unfinished() const {
  std::vector<Interval> out;
  std::lock_guard lock(mutex_);
  for (Queue queue : kMarked) {
    if (!of(queue)) continue;
    const Log& log = logs_[queue];
    auto first = log.given.begin() + (queues_.of(queue)->marked() - log.finished);
    if (first == log.given.end()) continue;
    auto last = std::find_if(first, log.given.end(), [](const Given& given) { return given.marked; });
    if (last == log.given.end()) --last;
    out.push_back({queue, first->at, last->at});
  }
  return out;
}

}  // namespace ds
