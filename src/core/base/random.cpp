#include "core/base/random.h"

#include <cmath>
#include <numbers>

namespace ds {

// The constants are those of the paper: two multipliers, and the golden ratio and sqrt(3) - 1 as
// key increments.
std::array<uint32_t, 4> philox(std::array<uint32_t, 4> c, std::array<uint32_t, 2> k) {
  for (int round = 0; round < 10; ++round) {
    uint64_t p0 = uint64_t{0xD2511F53u} * c[0];
    uint64_t p1 = uint64_t{0xCD9E8D57u} * c[2];
    // The high halves change places and are combined with the odd counter words and the key; the
    // low halves change places unchanged.
    c = {static_cast<uint32_t>(p1 >> 32) ^ c[1] ^ k[0], static_cast<uint32_t>(p1),
         static_cast<uint32_t>(p0 >> 32) ^ c[3] ^ k[1], static_cast<uint32_t>(p0)};
    k[0] += 0x9E3779B9u;
    k[1] += 0xBB67AE85u;
  }
  return c;
}

std::array<uint32_t, 4> RandomStream::block(uint64_t index) const {
  // The op fills the upper half of the counter's second word, which leaves 2^48 blocks of four
  // words to each operation.
  std::array<uint32_t, 4> counter{static_cast<uint32_t>(index),
                                  static_cast<uint32_t>(index >> 32) ^ (op << 16), step, leaf};
  return philox(counter, {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)});
}

RandomStream init_stream(uint64_t seed, uint32_t param) {
  constexpr uint32_t kOps = 32768;
  return {seed, 0, 0u - param / kOps, param % kOps};
}

// Elements 2i and 2i + 1 share a block: each uses two of its four words. u is never 0, so the
// logarithm is finite.
double normal_element(const RandomStream& stream, uint64_t element) {
  std::array<uint32_t, 4> w = stream.block(element / 2);
  bool second = element % 2 == 1;
  double u = (static_cast<double>(w[second ? 2 : 0]) + 1.0) * 0x1p-32;
  double v = static_cast<double>(w[second ? 3 : 1]) * 0x1p-32;
  return std::sqrt(-2.0 * std::log(u)) * std::cos(2.0 * std::numbers::pi * v);
}

}  // namespace ds
