#pragma once
#include <memory>
#include <string>
#include <string_view>

#include "comm/communicator.h"
#include "core/device/device.h"
#include "core/device/device_link.h"
#include "core/device/group.h"

namespace ds {

// Returns a group whose ranks each have a separate device. Its collectives run in the order of the
// devices' queues. `queue` must run no host code, and `link` must connect the devices of the ranks
// of `comm`. All arguments are borrowed.
std::unique_ptr<Group> make_link_group(Communicator& comm, const DeviceQueue& queue,
                                       DeviceLink& link);

// Tests a link: moves small and large parts from every rank to every other rank, by a gather and by
// a swap, and checks the bytes that arrive. A library that runs out of memory and devices that
// exchange wrong bytes thus cause an error before the first step. Collective.
void try_link(Communicator& comm, Device& device, DeviceQueue& queue, DeviceLink& link,
              std::string_view label);

// Waits until a link is settled (DeviceLink::settled()), and checks on the other ranks meanwhile.
void settle(Communicator& comm, DeviceLink& link, std::string_view operation,
            std::string_view label);

}  // namespace ds
