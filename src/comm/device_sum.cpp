// A device adds up at most kMostParts parts at once (ds_plugin.h). That number is a power of two,
// so the sum of kMostParts consecutive parts is a complete subtree of the balanced tree over all
// parts; the last subtree may be smaller, and the tree carries it up. Adding up the sums of these
// subtrees therefore gives the same bits as adding up all parts at once.
#include "comm/device_sum.h"

#include <algorithm>
#include <vector>

#include "core/base/round.h"

namespace ds {
namespace {

constexpr int64_t kMostParts = 64;
static_assert((kMostParts & (kMostParts - 1)) == 0);

// Returns the distance, in floats, between the beginnings of two partial sums in `room`.
int64_t pitch_of(int64_t count) {
  constexpr int64_t kAlignment = 256;
  return round_up(count, kAlignment / static_cast<int64_t>(sizeof(float)));
}

}  // namespace

int64_t device_sum_room(int64_t parts, int64_t count) {
  if (parts <= kMostParts) return 0;
  const int64_t runs = ceil_div(parts, kMostParts);
  return runs * pitch_of(count) * static_cast<int64_t>(sizeof(float)) +
         device_sum_room(runs, count);
}

void device_sum(DeviceQueue& queue, std::span<const void* const> parts, DType dtype, float* out,
                int64_t count, std::byte* room) {
  constexpr auto kMost = static_cast<size_t>(kMostParts);
  if (parts.size() <= kMost) return queue.sum(parts, dtype, out, count);
  auto* next = reinterpret_cast<float*>(room);
  std::vector<const void*> sums;
  for (size_t at = 0; at < parts.size(); at += kMost) {
    queue.sum(parts.subspan(at, std::min(kMost, parts.size() - at)), dtype, next, count);
    sums.push_back(next);
    next += pitch_of(count);
  }
  device_sum(queue, sums, DS_DTYPE_F32, out, count, reinterpret_cast<std::byte*>(next));
}

}  // namespace ds
