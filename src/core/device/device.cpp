#include "core/device/device.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <span>

#include "core/base/dtype.h"
#include "core/base/error.h"
#include "core/device/device_link.h"

namespace ds {

// The defaults for queues without sums and devices without links throw.
void DeviceQueue::sum(std::span<const void* const>, DType, float*, int64_t) {
  raise(DS_ERROR_INTERNAL, "a queue that runs host code has no sums over ranks");
}

std::string Device::link_library() const {
  raise(DS_ERROR_UNSUPPORTED, "device '{}' has no library that links ranks", name());
}

LinkId Device::make_link_id() const {
  raise(DS_ERROR_INTERNAL, "device '{}' has no library that links ranks", name());
}

std::unique_ptr<DeviceLink> Device::open_link(const LinkId&, int, int) const {
  raise(DS_ERROR_INTERNAL, "device '{}' has no library that links ranks", name());
}

// The system provides a page only when it is first written, so pages of zeros are not copied.
void copy_sparse(std::byte* to, const std::byte* from, int64_t bytes) {
  static constexpr int64_t kPage = 4096;
  static const std::byte zeros[kPage] = {};
  for (int64_t at = 0; at < bytes; at += kPage) {
    auto size = static_cast<size_t>(std::min(kPage, bytes - at));
    if (std::memcmp(from + at, zeros, size) != 0) std::memcpy(to + at, from + at, size);
  }
}

}  // namespace ds
