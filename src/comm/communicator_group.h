#pragma once
#include <cstdint>
#include <memory>

#include "comm/communicator.h"
#include "core/device/device.h"
#include "core/device/device_link.h"
#include "core/device/group.h"

namespace ds {

// Returns an object that performs collectives of `comm` as work of a queue like `queue`, on memory
// of `device`:
// - if the device shares its memory with host code, the communicator works on that memory;
// - if the queue runs no host code, the queue moves the data itself, through `link` if given
//   (link_group.h), otherwise between the ranks of one process (device_group.h); the caller must
//   have checked that this is possible;
// - otherwise collectives go through staging memory on the host, in chunks whose input and output
//   have up to `staging` bytes each: device to host, exchange, host to device.
// `link` connects the devices of the communicator's ranks; null: no link is needed. All arguments
// are borrowed.
std::unique_ptr<Group> make_group(Communicator& comm, Device& device, const DeviceQueue& queue,
                                  DeviceLink* link = nullptr, int64_t staging = int64_t{16} << 20);

}  // namespace ds
