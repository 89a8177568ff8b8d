#pragma once
#include <fmt/core.h>

#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <string>
#include <string_view>

#include "comm/communicator.h"
#include "comm/communicator_group.h"
#include "comm/groups.h"
#include "core/device/device.h"
#include "core/device/group.h"
#include "core/device/named_device.h"

namespace ds::test {

// How ranks use GPUs: all ranks share one GPU, whose queues access each other's memory, or each
// rank has its own GPU with links to the others.
enum class Gpus { shared, own };

// One rank's device with a queue and an arena, and its group of all ranks.
struct GroupRank {
  GroupRank(Communicator& communicator, int64_t bytes, Gpus gpus)
      : comm(communicator),
        device(make_device(fmt::format("cuda:{}", gpus == Gpus::own ? comm.rank() : 0))),
        groups(comm),
        arena(device->make_arena(Device::Place::device, bytes)),
        queue(device->make_queue("comm")) {
    if (gpus == Gpus::own) groups.link(*device);
    group = make_group(comm, *device, *queue, groups.link_of(comm), 1);
  }
  ~GroupRank() {
    if (std::uncaught_exceptions() > 0) groups.abort("a rank of the test throws");
    queue->finish();
  }

  void run(Group::Op op, const void* in, void* out, int64_t count, DType dtype,
           std::string_view label) {
    run_on(*queue, op, in, out, count, dtype, label);
  }
  void run_on(DeviceQueue& on, Group::Op op, const void* in, void* out, int64_t count, DType dtype,
              std::string_view label) {
    const int64_t room = group->room(op, count, dtype);
    group->run(on, op, in, out, count, dtype, room > 0 ? queue->scratch(room) : nullptr, label);
  }
  // Waits for the end of the queue, as an executor does at the end of a run.
  void finish() const {
    std::unique_ptr<Event> event = queue->make_event();
    queue->record(*event);
    for (auto ended = event->waiter(); !ended(20'000'000);) group->watch();
  }
  // Aborts the groups and ends the queue, as an executor does after an error.
  void give_up(const std::string& reason) {
    groups.abort(reason);
    queue->finish();
  }

  Communicator& comm;
  const std::unique_ptr<Device> device;
  // Holds the links, which must end before the device.
  CommGroups groups;
  const std::shared_ptr<Arena> arena;
  const std::unique_ptr<DeviceQueue> queue;
  std::unique_ptr<Group> group;
};

}  // namespace ds::test
