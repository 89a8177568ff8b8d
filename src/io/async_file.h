#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "core/base/trace.h"
#include "core/device/task_queue.h"
#include "io/request.h"

namespace ds {

// A task queue of transfers, each cut into chunks that are in flight together (libaio). Tickets and
// errors are as of TaskQueue: after an error the lane refuses everything. submit() checks the
// request (DS_ERROR_INVALID_ARGUMENT); transfers end in DS_ERROR_IO with path and label. File and
// memory live until completion; all calls may come from any thread.
class IoLane {
 public:
  // chunk_bytes, depth: DeepSpeed's aio.block_size and aio.queue_depth. trace may be null.
  IoLane(std::string name, size_t chunk_bytes, int depth, Trace* trace);
  ~IoLane();  // finishes what was submitted
  uint64_t submit(IoRequest request);
  const TaskQueue& tasks() const;  // whose tickets these are
  bool done(uint64_t ticket) const;
  void wait(uint64_t ticket);
  // Waits until nothing is queued or in flight. Errors stay for later calls.
  void finish() noexcept;
  int64_t bytes_read() const;
  int64_t bytes_written() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ds
