#pragma once
#include <algorithm>
#include <cstdint>
#include <numeric>
#include <span>

#include "core/base/element_run.h"
#include "core/base/round.h"

namespace ds {

// The wire format of a compressed all-reduce (docs/reference/ops.md, "Signs"): one bit per element
// of a bucket, and a scale per tensor. Each tensor is padded with zeros and cut into one chunk per
// rank. Rank r receives chunk r from all ranks and sends back its combination of them. A block is
// the message of one rank to another: an f32 scale for every tensor, then the bits of one chunk of
// every tensor, 8 elements per byte, the first element in the most significant bit. A bit is 1 if
// the value is not negative.

// The number of elements that are added into one sum of squares.
inline constexpr int64_t kSignSum = 256;

// Returns the number of elements of a chunk. The bits of a chunk fill whole bytes, and the padding
// is the same as in DeepSpeed.
constexpr int64_t sign_chunk(int64_t numel, int64_t ranks) {
  int64_t unit = 8 * ranks / std::gcd(ranks, int64_t{8});
  return ceil_div(numel, ranks * unit) * unit;
}

// The place of one tensor in its bucket, in a block and in the errors. Lengths are in elements
// unless stated otherwise.
struct SignTensor {
  // The offset and the length of the tensor in the bucket.
  int64_t begin = 0, numel = 0;
  // Index of the tensor's scale in a block.
  int64_t index = 0;
  // The length of a chunk.
  int64_t chunk = 0;
  // The sum of the chunk lengths of all earlier tensors. The tensor begins at this offset in the
  // server's error, and at `ranks` times this offset in the worker's error.
  int64_t first = 0;
  // Offset of the tensor's bits in a block, in bytes.
  int64_t bits = 0;
  // The index of the tensor's first sum of squares, if every tensor is `ways` chunks long.
  int64_t sums = 0;
};

// Calls f(SignTensor) for each tensor. `ways` is 1 for chunks, or the number of ranks for whole
// tensors.
template <typename F>
void for_sign_tensors(std::span<const ElementRun> tensors, int64_t ranks, int64_t ways,
                      const F& f) {
  SignTensor t;
  t.bits = static_cast<int64_t>(tensors.size() * sizeof(float));
  for (const ElementRun& run : tensors) {
    t.begin = run.begin;
    t.numel = run.end - run.begin;
    t.chunk = sign_chunk(t.numel, ranks);
    f(static_cast<const SignTensor&>(t));
    ++t.index;
    t.first += t.chunk;
    t.bits += t.chunk / 8;
    t.sums += ceil_div(ways * t.chunk, kSignSum);
  }
}

// Sizes of a bucket's message and of its errors.
struct SignSizes {
  // The number of elements in one chunk of every tensor, which is the size of the server's error.
  int64_t chunks = 0;
  // The size of a block, in bytes.
  int64_t block = 0;
  // The number of sums of squares, if every tensor is `ways` chunks long.
  int64_t sums = 0;
};
inline SignSizes sign_sizes(std::span<const ElementRun> tensors, int64_t ranks, int64_t ways) {
  SignSizes sizes{0, static_cast<int64_t>(tensors.size() * sizeof(float)), 0};
  for_sign_tensors(tensors, ranks, ways, [&](const SignTensor& t) {
    sizes.chunks += t.chunk;
    sizes.block += t.chunk / 8;
    sizes.sums += ceil_div(ways * t.chunk, kSignSum);
  });
  return sizes;
}

}  // namespace ds
