#include "exec/queues.h"

#include <algorithm>

#include "core/device/thread_queue.h"

namespace ds {

// If the device's queues are immediate, one queue does everything, except that collectives may have
// a separate thread (CollectivesOn::thread). Otherwise copies, and collectives that run on the
// device, get queues of the device, and host kernels and all other collectives get queues that run
// host code.
RankQueues::RankQueues(Device& device, ThreadTeam& team, CollectivesOn collectives)
    : device_(device), team_(team) {
  auto take = [&](std::unique_ptr<DeviceQueue> queue) {
    if (!queue->immediate()) threads_.push_back(queue.get());
    made_.push_back(std::move(queue));
    return made_.back().get();
  };
  DeviceQueue* compute = take(device.make_queue(queue_name(Queue::compute)));
  queues_[Queue::compute] = compute;
  for (Queue q : {Queue::host, Queue::comm, Queue::copy}) {
    if (compute->immediate()) {
      queues_[q] = compute;
    } else {
      bool own = q == Queue::copy || (q == Queue::comm && collectives == CollectivesOn::device);
      queues_[q] =
          take(own ? device.make_queue(queue_name(q)) : device.make_host_queue(queue_name(q)));
    }
  }
  if (compute->immediate() && collectives == CollectivesOn::thread)
    queues_[Queue::comm] = take(std::make_unique<ThreadQueue>(device, queue_name(Queue::comm)));
  // If compute kernels are host code, they occupy the cores. Otherwise the cores are free for host
  // kernels, such as random initial values and updates of offloaded states.
  if (!queues_[Queue::host]->immediate())
    host_team_ = std::make_unique<ThreadTeam>(compute->runs_host_code() ? 1 : team.size());
}

int64_t RankQueues::scratch_bytes() const {
  int64_t bytes = 0;
  for (const auto& queue : made_) bytes += queue->scratch_bytes();
  return bytes;
}

int RankQueues::thread_count() const {
  return team_.size() - 1 + (host_team_ ? host_team_->size() - 1 : 0) +
         static_cast<int>(threads_.size());
}

void RankQueues::order_after(Stream& stream) {
  std::unique_ptr<Event> event = stream.mark();
  for (DeviceQueue* queue : threads_) {
    queue->attribute(nullptr, 0);
    queue->wait(*event);
  }
}

// Tasks of one queue may wait for another queue, so all queues finish before any queue is
// destroyed.
RankQueues::~RankQueues() {
  for (DeviceQueue* queue : threads_) queue->finish();
}

}  // namespace ds
