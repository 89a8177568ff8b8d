#pragma once
#include <cstddef>
#include <cstdint>
#include <span>

#include "core/base/dtype.h"
#include "core/device/device.h"

namespace ds {

// Does what DeviceQueue::sum does, but accepts any number of parts; the bits are the same. `room`
// has device_sum_room() bytes of the device's memory, with the alignment of operands.
void device_sum(DeviceQueue& queue, std::span<const void* const> parts, DType dtype, float* out,
                int64_t count, std::byte* room);

// Returns the number of bytes that device_sum needs as `room`; 0 if the device adds up that many
// parts at once.
int64_t device_sum_room(int64_t parts, int64_t count);

}  // namespace ds
