#pragma once
#include <memory>

#include "comm/communicator.h"
#include "core/device/device.h"
#include "core/device/group.h"

namespace ds {

// Collectives of ranks that are threads of one process, on memory of one device and in the order of
// its queues: `queue` is one that runs no host code, and the devices of all ranks have one domain.
// Everything is borrowed.
std::unique_ptr<Group> make_device_group(Communicator& comm, const DeviceQueue& queue);

}  // namespace ds
