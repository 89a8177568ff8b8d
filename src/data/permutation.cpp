#include "data/permutation.h"

#include <bit>

#include "core/base/random.h"

namespace ds {

uint64_t draw(uint64_t seed, int64_t epoch, DrawFor purpose, uint64_t index) {
  RandomStream stream{seed, static_cast<uint32_t>(epoch), static_cast<uint32_t>(epoch >> 32),
                      static_cast<uint32_t>(purpose)};
  auto words = stream.block(index);
  return uint64_t{words[0]} << 32 | words[1];
}

// A balanced Feistel network of four rounds over the next even number of bits, applied until the
// result is below `count` (Black and Rogaway, "Ciphers with arbitrary finite domains", CT-RSA
// 2002). The domain has at most four times `count` values, so at most four applications are
// expected.
int64_t permute(uint64_t seed, int64_t epoch, int64_t index, int64_t count) {
  int half = (std::bit_width(static_cast<uint64_t>(count - 1)) + 1) / 2;
  uint64_t mask = (uint64_t{1} << half) - 1;
  auto value = static_cast<uint64_t>(index);
  do {
    uint64_t left = value >> half;
    uint64_t right = value & mask;
    for (uint64_t round = 0; round < 4; ++round) {
      uint64_t mixed = left ^ (draw(seed, epoch, DrawFor::round, round << 40 | right) & mask);
      left = right;
      right = mixed;
    }
    value = left << half | right;
  } while (value >= static_cast<uint64_t>(count));
  return static_cast<int64_t>(value);
}

}  // namespace ds
