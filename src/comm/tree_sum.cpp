#include <cstring>

#include "comm/communicator.h"
#include "comm/transport/transport.h"
#include "core/base/error.h"

namespace ds {
namespace {

constexpr size_t kBlock = 256;

template <typename Wire, typename Sum>
void load(const Wire* from, Sum* to, size_t count) {
  for (size_t i = 0; i < count; ++i) to[i] = static_cast<Sum>(from[i]);
}

// Blocks of all ranks are widened, then added pairwise: (0+1)+(2+3); an odd last one is carried up.
template <typename Wire, typename Sum>
void sum_blocks(const void* const* src, int ranks, Sum* dst, size_t count) {
  Sum rows[kMaxRanks][kBlock];
  for (size_t first = 0; first < count; first += kBlock) {
    size_t block = std::min(kBlock, count - first);
    for (int r = 0; r < ranks; ++r) load(static_cast<const Wire*>(src[r]) + first, rows[r], block);
    for (int left = ranks; left > 1; left = (left + 1) / 2) {
      for (int pair = 0; 2 * pair < left; ++pair) {
        Sum* to = rows[pair];
        const Sum* a = rows[2 * pair];
        const Sum* b = rows[2 * pair + 1];
        bool odd = 2 * pair + 1 == left;
        for (size_t i = 0; i < block; ++i) to[i] = odd ? a[i] : a[i] + b[i];
      }
    }
    std::memcpy(dst + first, rows[0], block * sizeof(Sum));
  }
}

}  // namespace

void tree_sum(const void* const* src, int ranks, DType wire, void* dst, size_t count) {
  switch (wire) {
    case DS_DTYPE_F32:
      return sum_blocks<float>(src, ranks, static_cast<float*>(dst), count);
    case DS_DTYPE_BF16:
      return sum_blocks<bf16>(src, ranks, static_cast<float*>(dst), count);
    case DS_DTYPE_F64:
      return sum_blocks<double>(src, ranks, static_cast<double*>(dst), count);
    default:
      raise(DS_ERROR_INVALID_ARGUMENT, "reductions take f32, bf16 or f64, got {}", dtype_name(wire));
  }
}

size_t sum_size(DType wire) { return wire == DS_DTYPE_F64 ? 8 : 4; }

}  // namespace ds
