#pragma once
#include <algorithm>
#include <cstdint>
#include <numeric>
#include <span>

#include "core/base/element_run.h"
#include "core/base/round.h"

namespace ds {

// The wire format of a compressed all-reduce (docs/reference/ops.md, "Signs"): tensors of a bucket
// as one bit an element and a scale. Each tensor is padded with zeros and cut into one chunk for
// each rank; rank r receives chunk r of all ranks and sends back what it makes of them. A block is
// what one rank sends another at a time: a scale (f32) of every tensor, then the bits of one chunk
// of every tensor, 8 elements a byte, the first in the most significant bit, 1 for a value that is
// not negative.

// Sums of squares are formed by so many elements.
inline constexpr int64_t kSignSum = 256;

// Elements of a chunk: whole bytes, and as many as DeepSpeed's padding has.
constexpr int64_t sign_chunk(int64_t numel, int64_t ranks) {
  int64_t unit = 8 * ranks / std::gcd(ranks, int64_t{8});
  return ceil_div(numel, ranks * unit) * unit;
}

// Where a tensor lies. Lengths in elements unless they say otherwise.
struct SignTensor {
  int64_t begin = 0, numel = 0;  // in the bucket
  int64_t index = 0;             // of its scale in a block
  int64_t chunk = 0;
  int64_t first = 0;  // of the chunks of the tensors before it: where it begins in the server's
                      // error, and `ranks` times this in the worker's
  int64_t bits = 0;  // where its bits begin in a block, in bytes
  int64_t sums = 0;  // where its sums of squares begin, of tensors as long as `ways` chunks
};

// Calls f(SignTensor) for each tensor; `ways` is 1, or the number of ranks where whole tensors are
// meant.
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

// Sizes of a bucket.
struct SignSizes {
  int64_t chunks = 0;  // elements of one chunk of every tensor: of the server's error
  int64_t block = 0;   // bytes
  int64_t sums = 0;    // sums of squares of tensors as long as `ways` chunks
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
