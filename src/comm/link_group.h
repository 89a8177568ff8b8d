#pragma once
#include <memory>
#include <string>
#include <string_view>

#include "comm/communicator.h"
#include "core/device/device.h"
#include "core/device/device_link.h"
#include "core/device/group.h"

namespace ds {

// Collectives of ranks on devices of their own, in the order of their queues: `queue` is one that
// runs no host code, `link` joins the devices of the ranks of `comm`. Everything is borrowed.
std::unique_ptr<Group> make_link_group(Communicator& comm, const DeviceQueue& queue,
                                       DeviceLink& link);

// Has the link move bytes from every rank to every other one, little and much and in both ways, and
// compares what arrives. So a library without memory, and devices that exchange other bytes than
// they should, are errors before the first step. Collective.
void try_link(Communicator& comm, Device& device, DeviceQueue& queue, DeviceLink& link,
              std::string_view label);

// Returns when a link is settled, and watches the other ranks meanwhile.
void settle(Communicator& comm, DeviceLink& link, std::string_view operation,
            std::string_view label);

}  // namespace ds
