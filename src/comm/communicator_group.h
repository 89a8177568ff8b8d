#pragma once
#include <cstdint>
#include <memory>

#include "comm/communicator.h"
#include "core/device/device.h"
#include "core/device/device_link.h"
#include "core/device/group.h"

namespace ds {

// The collectives of a device by a communicator, for work of `queue`. Where the device shares its
// memory with host code, the communicator works on it. A queue that runs no host code does them
// itself (device_group.h), which its caller has found possible. Elsewhere they go through staging,
// in chunks of up to `staging` bytes: device to host, exchange, host to device. `link`: of these
// ranks' devices, null where such a queue needs none. All are borrowed.
std::unique_ptr<Group> make_group(Communicator& comm, Device& device, const DeviceQueue& queue,
                                  DeviceLink* link = nullptr, int64_t staging = int64_t{16} << 20);

}  // namespace ds
