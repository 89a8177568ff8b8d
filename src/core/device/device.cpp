#include "core/device/device.h"

#include <algorithm>
#include <cstring>

namespace ds {

void copy_sparse(std::byte* to, const std::byte* from, int64_t bytes) {
  static constexpr int64_t kPage = 4096;
  static const std::byte zeros[kPage] = {};
  for (int64_t at = 0; at < bytes; at += kPage) {
    auto size = static_cast<size_t>(std::min(kPage, bytes - at));
    if (std::memcmp(from + at, zeros, size) != 0) std::memcpy(to + at, from + at, size);
  }
}

}  // namespace ds
