#pragma once
#include <array>
#include <cstdint>
#include <span>
#include <string>

namespace ds {

// A part of one tensor of one kind of state that one rank wrote: `rows` rows of `count` elements.
// The first row begins at element `begin`, and each further row `stride` elements after the
// previous one. `hash` covers the bytes of the rows in this order. The struct is trivially
// copyable, because ranks exchange its bytes.
struct Piece {
  int32_t kind = 0;
  int32_t tensor = 0;
  int64_t begin = 0;
  int64_t count = 0;
  int64_t rows = 1;
  // The distance between the starts of two rows, or 0 if there is only one row.
  int64_t stride = 0;
  // The xxh3-128 of the bytes, in hexadecimal.
  std::array<char, 32> hash = {};
};

// Returns "" if the pieces, sorted by `begin`, cover each of the `numel` elements of a tensor
// exactly once. Otherwise returns a line that describes the first fault found. The cost is O(n log
// n) for n pieces, regardless of the number of rows that they claim to have.
std::string find_bad_tiling(std::span<const Piece> pieces, int64_t numel);

}  // namespace ds
