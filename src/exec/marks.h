#pragma once
#include <cstdint>
#include <mutex>
#include <vector>

#include "core/device/device.h"
#include "core/program/instruction.h"
#include "core/program/program.h"
#include "exec/queues.h"

namespace ds {

// A log of the instructions that a run has submitted to queues with marks. It serves to attribute
// an error that is reported late: the failed work is between the last mark that a queue has passed
// and the next mark. All functions may be called on any thread.
class Marks {
 public:
  explicit Marks(const RankQueues& queues) : queues_(queues) {}
  // Returns whether the queue has marks.
  bool of(Queue queue) const { return queues_.of(queue)->marks(); }
  // Begins a run and forgets the previous one. Nothing may be in flight.
  void begin();
  // Notes an instruction that is about to be submitted.
  void give(Queue queue, const Position& at);
  // Submits a mark after the last noted instruction.
  void mark(Queue queue);
  // A range of instructions of a queue that contains an unfinished instruction.
  struct Interval {
    Queue queue;
    Position first, last;
  };
  // Returns, for each queue with unfinished instructions, the interval between the last mark that
  // the queue has passed and the next mark.
  std::vector<Interval> unfinished() const;
  // Returns whether the instruction was noted on the queue and has not finished.
  bool unfinished(Queue queue, InstrId instr) const;

 private:
  struct Given {
    Position at;
    bool marked = false;
  };
  struct Log {
    // The noted instructions, in order. Finished instructions are dropped from time to time.
    std::vector<Given> given;
    // The number of instructions that were dropped.
    uint32_t finished = 0;
  };

  // Returns the first instruction after the last mark that the queue has passed.
  std::vector<Given>::const_iterator next(Queue queue) const;

  const RankQueues& queues_;
  mutable std::mutex mutex_;
  PerQueue<Log> logs_;
};

}  // namespace ds
