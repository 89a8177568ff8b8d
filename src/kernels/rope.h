#pragma once
#include <array>
#include <cstdint>

#include "core/base/attrs.h"
#include "core/graph/ops/rope_factors.h"

namespace ds {

// The attributes of `rope` in docs/reference/ops.md, for a row of `columns`: which pairs turn, how
// fast. One formula for all implementations. `length`: of the text, operand 2 where it is there; 0:
// attribute `seq`.
struct Rope {
  Rope(const Attrs& attrs, int64_t columns, int64_t length = 0);

  int64_t heads, depth, dims, period, rotated, seq;
  bool interleaved;
  double magnitude;  // of the rotation: cos and sin are multiplied by it

  bool turns(int64_t head) const { return head % period < rotated; }
  // Columns of pair i of a head: first(i) and first(i) + distance().
  int64_t first(int64_t pair) const { return interleaved ? 2 * pair : pair; }
  int64_t distance() const { return interleaved ? 1 : dims / 2; }
  // Radians that pair i < dims/2 turns from one position to the next; negative for `inverse`.
  double frequency(int64_t pair) const;

 private:
  enum class Scaling { none, linear, dynamic, llama3, yarn, longrope };
  void resolve(const Attrs& attrs, int64_t length);  // what depends on the length of the text
  double kept(double plain, int64_t pair) const;     // s of docs/reference/ops.md

  double theta_, sign_, factor_, low_, high_, original_;
  Scaling scaling_;
  bool truncate_;                                 // of yarn
  std::array<double, kMostRopeFactors> factors_;  // of longrope
};

}  // namespace ds
