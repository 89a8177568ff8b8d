#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "comm/communicator.h"
#include "comm/exchange.h"
#include "core/base/error.h"
#include "core/base/hash.h"

namespace ds {

// Consecutive blocks of a buffer, one for each rank. Offsets and sizes are in units that the caller
// chooses: bytes or elements.
class Blocks {
 public:
  // All blocks have the size `each`.
  Blocks(int ranks, size_t each) : ranks_(static_cast<size_t>(ranks)), most_(each) {}
  // Rank r's block has sizes[r] units. `name` is the argument that an error names.
  Blocks(int ranks, std::span<const size_t> sizes, const char* name)
      : ranks_(static_cast<size_t>(ranks)) {
    require(sizes.size() == ranks_, "{} must have one entry for each of the {} ranks, got {}", name,
            ranks, sizes.size());
    begins_.push_back(0);
    for (size_t size : sizes) {
      begins_.push_back(begins_.back() + size);
      most_ = std::max(most_, size);
    }
    hash_ = hash64({reinterpret_cast<const char*>(sizes.data()), sizes.size_bytes()});
  }
  size_t begin(size_t rank) const { return begins_.empty() ? rank * most_ : begins_[rank]; }
  size_t size(size_t rank) const { return begin(rank + 1) - begin(rank); }
  // Returns how many of the units [first, first + most), counted from the beginning of the rank's
  // block, are inside the block.
  size_t overlap(size_t rank, size_t first, size_t most) const {
    return std::min(size(rank) - std::min(first, size(rank)), most);
  }
  size_t total() const { return begin(ranks_); }
  size_t most() const { return most_; }
  uint64_t hash() const { return hash_; }

 private:
  size_t ranks_, most_ = 0;
  // The offset of each block and the end of the last one, ranks_ + 1 entries; empty if all blocks
  // have the same size.
  std::vector<size_t> begins_;
  uint64_t hash_ = 0;
};

// Returns the address `offset` bytes into a buffer.
inline std::byte* at(void* data, size_t offset) { return static_cast<std::byte*>(data) + offset; }
inline const std::byte* at(const void* data, size_t offset) {
  return static_cast<const std::byte*>(data) + offset;
}

// Returns a part to send. The const_cast is safe, because the exchange only reads parts to send;
// Part has no const form.
inline Part to_send(const void* data, size_t bytes) { return {const_cast<void*>(data), bytes}; }

}  // namespace ds
