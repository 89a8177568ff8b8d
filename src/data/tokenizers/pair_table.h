#pragma once
#include <cstdint>
#include <vector>

namespace ds {

// Pairs of token ids to the rank of their merge and the token they make: a hash table with linear
// probing, at most half full. Read far more often than written.
class PairTable {
 public:
  struct Merge {
    int32_t rank, token;
  };

  explicit PairTable(size_t pairs = 0) {
    size_t slots = 16;
    while (slots < 2 * pairs) slots *= 2;
    slots_.assign(slots, {empty, {0, 0}});
  }
  // Replaces what the pair had. At most as many different pairs as the table was made for.
  void set(int32_t left, int32_t right, Merge merge) {
    slots_[slot(key(left, right))] = {key(left, right), merge};
  }
  const Merge* find(int32_t left, int32_t right) const {
    const Slot& found = slots_[slot(key(left, right))];
    return found.key == empty ? nullptr : &found.merge;
  }

 private:
  struct Slot {
    uint64_t key;
    Merge merge;
  };
  static constexpr uint64_t empty = ~uint64_t{0};  // ids are not negative
  static uint64_t key(int32_t left, int32_t right) {
    return uint64_t{static_cast<uint32_t>(left)} << 32 | static_cast<uint32_t>(right);
  }
  size_t slot(uint64_t key) const {
    size_t mask = slots_.size() - 1;
    size_t at =
        (key * 0x9e3779b97f4a7c15u >> 20) & mask;  // Fibonacci hashing (Knuth, TAOCP 3, 6.4)
    while (slots_[at].key != key && slots_[at].key != empty) at = (at + 1) & mask;
    return at;
  }

  std::vector<Slot> slots_;
};

}  // namespace ds
