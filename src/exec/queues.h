#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include "core/device/device.h"
#include "core/device/stream.h"
#include "core/device/thread_team.h"
#include "core/program/program.h"

namespace ds {

// Where the collectives of a program run.
enum class CollectivesOn : int8_t {
  // On the issuing thread if the device's queues are immediate, otherwise on a separate thread.
  usual,
  // On a separate thread, even if the device's queues are immediate.
  thread,
  // On a queue of the device. All ranks must do the same (comm/device_group.h, comm/link_group.h).
  device,
};

// The queues of a rank's device, and the threads that their kernels use. The executors of a rank
// share one RankQueues. File transfers of lanes may wait for work of a queue, so the lanes must
// finish before this object is destroyed.
class RankQueues {
 public:
  // Compute kernels use `team`. If the host queue is not immediate, its kernels get another team,
  // which has one thread if compute kernels are also host code, and otherwise as many threads as
  // `team`. Device and team are borrowed.
  RankQueues(Device& device, ThreadTeam& team, CollectivesOn collectives = CollectivesOn::usual);
  ~RankQueues();

  Device& device() const { return device_; }
  // Returns the queue of the device for a queue of the program, or null for reads and writes, which
  // have lanes. Several queues of the program may share one queue of the device.
  DeviceQueue* of(Queue queue) const { return queues_[queue]; }
  // Returns the threads that the kernels of a queue use.
  ThreadTeam& team(Queue queue) const {
    return queue == Queue::host && host_team_ ? *host_team_ : team_;
  }
  // Returns whether all queues are immediate.
  bool immediate() const { return threads_.empty(); }
  // Returns the bytes of scratch memory of all queues. This memory is not part of the arenas.
  int64_t scratch_bytes() const;
  // Returns the number of threads other than the caller's: those of the teams, and one for each
  // queue that is not immediate.
  int thread_count() const;
  // Makes all work that is submitted to the queues after this call wait for the work submitted to
  // the stream so far. The stream must outlive the queues.
  void order_after(Stream& stream);
  // Returns the queues that are not immediate.
  const std::vector<DeviceQueue*>& threads() const { return threads_; }

 private:
  Device& device_;
  ThreadTeam& team_;
  std::unique_ptr<ThreadTeam> host_team_;
  std::vector<std::unique_ptr<DeviceQueue>> made_;
  PerQueue<DeviceQueue*> queues_{};
  std::vector<DeviceQueue*> threads_;
};

}  // namespace ds
