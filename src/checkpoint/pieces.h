#pragma once
#include <array>
#include <cstdint>
#include <span>
#include <string>

namespace ds {

// What one rank wrote of one tensor of one kind: `rows` times `count` elements, the first from
// `begin` on, each `stride` behind the one before, with the hash of their bytes in this order.
// Plain bytes, because ranks exchange them.
struct Piece {
  int32_t kind = 0;
  int32_t tensor = 0;
  int64_t begin = 0;
  int64_t count = 0;
  int64_t rows = 1;
  int64_t stride = 0;              // 0 where there is one row
  std::array<char, 32> hash = {};  // xxh3-128, hexadecimal
};

// "" when the pieces, sorted by their begin, have each of a tensor's `numel` elements once; else
// the line that says what is wrong with which of them. Takes n log n of n pieces, however many rows
// these claim to have.
std::string find_bad_tiling(std::span<const Piece> pieces, int64_t numel);

}  // namespace ds
