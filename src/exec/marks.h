#pragma once
#include <cstdint>
#include <mutex>
#include <vector>

#include "core/device/device.h"
#include "core/program/instruction.h"
#include "core/program/program.h"
#include "exec/queues.h"

namespace ds {

// What a run has given to the queues that have marks, so that an error which shows late can be
// named: the work to blame lies between the last mark that a queue has reached and the next one.
// Any thread may ask.
class Marks {
 public:
  explicit Marks(const RankQueues& queues) : queues_(queues) {}
  bool of(Queue queue) const { return queues_.of(queue)->marks(); }
  void begin();                                // of a run; nothing is in flight
  void give(Queue queue, const Position& at);  // about to be given
  void mark(Queue queue);                      // behind what was given last
  struct Interval {
    Queue queue;
    Position first, last;
  };
  std::vector<Interval> unfinished() const;           // at most one of each queue
  bool unfinished(Queue queue, InstrId instr) const;  // it has been given

 private:
  struct Given {
    Position at;
    bool marked = false;
  };
  struct Log {
    std::vector<Given> given;  // without those that have finished, now and then
    uint32_t finished = 0;     // that are no longer there
  };

  std::vector<Given>::const_iterator next(
      Queue queue) const;  // behind the last mark that was reached

  const RankQueues& queues_;
  mutable std::mutex mutex_;
  PerQueue<Log> logs_;
};

}  // namespace ds
