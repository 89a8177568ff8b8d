#pragma once
#include <memory>
#include <string>
#include <string_view>

#include "comm/communicator.h"
#include "core/device/device.h"
#include "core/device/device_link.h"
#include "core/device/group.h"

namespace ds {

// Collectives of ranks on devices of their own, in the order of their queues: `queue` is one that runs no
// host code, `link` joins the devices of the ranks of `comm`. Everything is borrowed.
std::unique_ptr<Group> make_link_group(Communicator& comm, const DeviceQueue& queue, DeviceLink& link);

// Returns when a link is settled, and watches the other ranks meanwhile.
void settle(Communicator& comm, DeviceLink& link, std::string_view operation, std::string_view label);

}  // namespace ds
