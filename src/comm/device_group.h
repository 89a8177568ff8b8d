#pragma once
#include <memory>

#include "comm/communicator.h"
#include "core/device/device.h"
#include "core/device/group.h"

namespace ds {

// Returns the collectives of ranks that are threads of one process and whose memory is on one
// device. They run in the order of the device's queues. `queue` runs no host code, and the devices
// of all ranks have the same domain. Both arguments are borrowed.
std::unique_ptr<Group> make_device_group(Communicator& comm, const DeviceQueue& queue);

}  // namespace ds
