#pragma once
#include <cstdint>
#include <vector>

namespace ds::text {

// A map from pairs of token ids to the rank of their merge and the token that results. It is a hash
// table with linear probing, at most half full, since it is read far more often than written.
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
  // Sets the merge of a pair, replacing an earlier one. The table must have been constructed for at
  // least as many different pairs.
  void set(int32_t left, int32_t right, Merge merge) {
    slots_[slot(key(left, right))] = {key(left, right), merge};
  }
  // Returns null if no merge joins the pair.
  const Merge* find(int32_t left, int32_t right) const {
    const Slot& found = slots_[slot(key(left, right))];
    return found.key == empty ? nullptr : &found.merge;
  }

 private:
  struct Slot {
    uint64_t key;
    Merge merge;
  };
  // No pair has this key, since ids are not negative.
  static constexpr uint64_t empty = ~uint64_t{0};
  static uint64_t key(int32_t left, int32_t right) {
    return uint64_t{static_cast<uint32_t>(left)} << 32 | static_cast<uint32_t>(right);
  }
  // Returns the slot of a key, or the free slot where it belongs.
  size_t slot(uint64_t key) const {
    size_t mask = slots_.size() - 1;
    // Fibonacci hashing (Knuth, TAOCP 3, section 6.4).
    size_t at = (key * 0x9e3779b97f4a7c15u >> 20) & mask;
    while (slots_[at].key != key && slots_[at].key != empty) at = (at + 1) & mask;
    return at;
  }

  std::vector<Slot> slots_;
};

}  // namespace ds::text
