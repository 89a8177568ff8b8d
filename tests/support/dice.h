#pragma once
#include <cstdint>
#include <initializer_list>

#include "core/base/random.h"

namespace ds::test {

// A sequence of random draws that depends only on the seed and the stream.
class Dice {
 public:
  explicit Dice(uint64_t seed, uint32_t stream = 0) : stream_{seed, stream, 0, 0} {}
  // Draws a number in [0, end).
  int64_t below(int64_t end) { return stream_.block(draws_++)[0] % end; }
  bool one_in(int64_t n) { return below(n) == 0; }
  template <typename T>
  T pick(std::initializer_list<T> from) {
    return from.begin()[below(static_cast<int64_t>(from.size()))];
  }

 private:
  RandomStream stream_;
  uint64_t draws_ = 0;
};

}  // namespace ds::test
