#pragma once
#include <cstdint>
#include <mutex>
#include <vector>

#include "core/device/device.h"
#include "core/program/instruction.h"
#include "core/program/program.h"
#include "exec/queues.h"

namespace ds {

// Remembers which instructions a run has submitted to the queues that have marks, so that an error
// that is reported late can be attributed: the failed work lies between the last mark that a queue
// has passed and the next one. All functions may be called on any thread.
class Marks {
 public:
  explicit Marks(const RankQueues& queues) : queues_(queues) {}
  // Returns whether the queue has marks.
  bool of(Queue queue) const { return queues_.of(queue)->marks(); }
  // Begins a run and forgets the previous one. Nothing may be in flight.
  void begin();
  // Notes an instruction that is about to be submitted.
  void give(Queue queue, const Position& at);
  // Submits a mark after the instruction that was noted last.
  void mark(Queue queue);
  // A range of instructions of a queue that contains an unfinished one.
  struct Interval {
    Queue queue;
    Position first, last;
  };
  // Returns, for each queue with unfinished instructions, the interval between the last mark that
  // it has passed and the next.
  std::vector<Interval> unfinished() const;
  // Returns whether the instruction was noted on the queue and has not finished.
  bool unfinished(Queue queue, InstrId instr) const;

 private:
  struct Given {
    Position at;
    bool marked = false;
  };
  struct Log {
    // The instructions that were noted, in order. Finished ones are dropped from time to time.
    std::vector<Given> given;
    // Number of instructions that were dropped.
    uint32_t finished = 0;
  };

  // Returns the first instruction after the last mark that the queue has passed.
  std::vector<Given>::const_iterator next(Queue queue) const;

  const RankQueues& queues_;
  mutable std::mutex mutex_;
  PerQueue<Log> logs_;
};

}  // namespace ds
