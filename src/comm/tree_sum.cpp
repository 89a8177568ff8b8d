#include <algorithm>
#include <cstring>

#include "comm/communicator.h"
#include "comm/transport/transport.h"
#include "core/base/error.h"

namespace ds {
namespace {

constexpr size_t kBlock = 256;

template <typename Wire, typename Sum>
void load(const Wire* __restrict from, Sum* __restrict to) {
  for (size_t i = 0; i < kBlock; ++i) to[i] = static_cast<Sum>(from[i]);
}

template <typename Sum>
void add(const Sum* a, const Sum* __restrict b, Sum* to) {
  for (size_t i = 0; i < kBlock; ++i) to[i] = a[i] + b[i];
}

// Sums whole blocks (a constant count: the compiler makes vectors of it). rows[r] holds rank r.
template <typename Sum>
void sum_rows(Sum (*rows)[kBlock], int ranks) {
  for (int left = ranks; left > 1; left = (left + 1) / 2) {
    for (int pair = 0; 2 * pair < left; ++pair) {
      bool odd = 2 * pair + 1 == left;
      if (!odd) add(rows[2 * pair], rows[2 * pair + 1], rows[pair]);
      if (odd && pair != 2 * pair) std::memcpy(rows[pair], rows[2 * pair], sizeof rows[0]);
    }
  }
}

// Blocks of all ranks are widened, then added pairwise: (0+1)+(2+3); an odd last one is carried up. dst may
// be one of src: a block is written after it has been read.
template <typename Wire, typename Sum>
void sum_blocks(const void* const* src, int ranks, Sum* dst, size_t count) {
  Sum rows[kMaxRanks][kBlock];
  for (size_t first = 0; first < count; first += kBlock) {
    size_t block = std::min(kBlock, count - first);
    for (int r = 0; r < ranks; ++r) {
      const Wire* from = static_cast<const Wire*>(src[r]) + first;
      if (block == kBlock) {
        load(from, rows[r]);
      } else {
        std::fill_n(rows[r], kBlock, Sum{0});
        for (size_t i = 0; i < block; ++i) rows[r][i] = static_cast<Sum>(from[i]);
      }
    }
    sum_rows(rows, ranks);
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
