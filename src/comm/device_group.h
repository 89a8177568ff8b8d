#pragma once
#include <memory>

#include "comm/communicator.h"
#include "core/device/device.h"
#include "core/device/group.h"

namespace ds {

// Returns a group whose ranks are threads of one process with memory on one device. Its collectives
// run in the order of the device's queues. `queue` must run no host code, and the devices of all
// ranks must have the same domain. Both arguments are borrowed.
std::unique_ptr<Group> make_device_group(Communicator& comm, const DeviceQueue& queue);

}  // namespace ds
