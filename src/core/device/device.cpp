#include "core/device/device.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <span>

#include "core/base/dtype.h"
#include "core/base/error.h"

namespace ds {

void DeviceQueue::sum(std::span<const void* const>, DType, float*, int64_t) {
  raise(DS_ERROR_INTERNAL, "a queue that runs host code has no sums over ranks");
}

void copy_sparse(std::byte* to, const std::byte* from, int64_t bytes) {
  static constexpr int64_t kPage = 4096;
  static const std::byte zeros[kPage] = {};
  for (int64_t at = 0; at < bytes; at += kPage) {
    auto size = static_cast<size_t>(std::min(kPage, bytes - at));
    if (std::memcmp(from + at, zeros, size) != 0) std::memcpy(to + at, from + at, size);
  }
}

}  // namespace ds
