#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include "core/device/device.h"
#include "core/device/stream.h"
#include "core/device/thread_team.h"
#include "core/program/program.h"

namespace ds {

// Who makes collectives.
enum class CollectivesOn : int8_t {
  usual,   // the thread that issues where it does everything, else a thread
  thread,  // a thread, also where the device has none
  device,  // a queue of the device, as those of all ranks (comm/device_group.h, comm/link_group.h)
};

// What carries out a rank's programs: the queues of its device, one after the other or at once, and
// the threads that their kernels use. Executors of one rank share them. Transfers of lanes may wait
// for what a queue does: lanes finish before this ends.
class RankQueues {
 public:
  // team: of compute. A queue of host kernels that is a thread has a team of its own: of one thread
  // where compute is threads, too, else as large. Device and team are borrowed.
  RankQueues(Device& device, ThreadTeam& team, CollectivesOn collectives = CollectivesOn::usual);
  ~RankQueues();

  Device& device() const { return device_; }
  // Null: of files, which have lanes. Several queues of a program may be one of the device.
  DeviceQueue* of(Queue queue) const { return queues_[queue]; }
  ThreadTeam& team(Queue queue) const {
    return queue == Queue::host && host_team_ ? *host_team_ : team_;
  }
  bool immediate() const { return threads_.empty(); }
  int64_t scratch_bytes() const;  // of the device, outside its arenas
  // Threads beside the caller's: of teams and of queues.
  int thread_count() const;
  // What queues are given from here on starts when the work that the stream has now has finished.
  // They may not outlive it.
  void order_after(Stream& stream);
  // Those that are not immediate.
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
