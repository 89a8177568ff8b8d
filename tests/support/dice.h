#pragma once
#include <cstdint>
#include <initializer_list>

#include "core/base/random.h"

namespace ds::test {

// Draws one after the other, a function of seed and stream.
class Dice {
 public:
  explicit Dice(uint64_t seed, uint32_t stream = 0) : stream_{seed, stream, 0, 0} {}
  int64_t below(int64_t end) { return stream_.block(draws_++)[0] % end; }  // in [0, end)
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
