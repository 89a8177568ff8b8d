#pragma once
#include <cstdint>
#include <memory>

#include "comm/communicator.h"
#include "core/device/group.h"

namespace ds {

// The collectives of a device by a communicator. Where the device shares its memory with host code, they work
// on it; elsewhere they go through staging, in
// chunks of up to `staging` bytes: device to host, exchange, host to device. Both are
// borrowed. The queue must be a thread of the host.
std::unique_ptr<Group> make_group(Communicator& comm, Device& device, int64_t staging = int64_t{16} << 20);

}  // namespace ds
