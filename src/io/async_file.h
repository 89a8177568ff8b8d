#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "core/base/trace.h"
#include "core/device/task_queue.h"
#include "io/request.h"

namespace ds {

// A task queue of transfers. Each transfer is cut into chunks, and up to `depth` chunks are in
// flight at a time (libaio). Tickets and errors are those of TaskQueue: after an error the lane
// refuses all further requests. submit() checks the request (DS_ERROR_INVALID_ARGUMENT). The error
// of a transfer is that of Transfer::run(), or the one that request.ready() throws. The file and
// the memory must live until the transfer has ended. Every function may be called from any thread.
class IoLane {
 public:
  // `chunk_bytes` and `depth` correspond to DeepSpeed's aio.block_size and aio.queue_depth. `trace`
  // may be null.
  IoLane(std::string name, size_t chunk_bytes, int depth, Trace* trace);
  // Waits until all submitted transfers have ended.
  ~IoLane();
  // Queues a transfer and returns its ticket.
  uint64_t submit(IoRequest request);
  // Returns the queue that issues the tickets.
  const TaskQueue& tasks() const;
  bool done(uint64_t ticket) const;
  void wait(uint64_t ticket);
  // Waits until nothing is queued or in flight. Does not throw; an error stays stored for later
  // calls.
  void finish() noexcept;
  int64_t bytes_read() const;
  int64_t bytes_written() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ds
