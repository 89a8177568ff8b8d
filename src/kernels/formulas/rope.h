#pragma once
#include <array>
#include <cstdint>

#include "core/base/attrs.h"
#include "core/graph/ops/rope_factors.h"

namespace ds {

// The attributes of `rope` in docs/reference/ops.md, for rows of `columns` columns: which pairs of
// columns are rotated, and how fast. All implementations use these formulas. `length` is the length
// of the text, from operand 2 if there is one; 0 means attribute `seq`.
struct Rope {
  Rope(const Attrs& attrs, int64_t columns, int64_t length = 0);

  int64_t heads, depth, dims, period, rotated, seq;
  bool interleaved;
  // The factor of cos and sin.
  double magnitude;

  bool turns(int64_t head) const { return head % period < rotated; }
  // Pair i of a head is columns first(i) and first(i) + distance().
  int64_t first(int64_t pair) const { return interleaved ? 2 * pair : pair; }
  int64_t distance() const { return interleaved ? 1 : dims / 2; }
  // Returns the angle in radians by which pair `pair` < dims/2 turns from one position to the next;
  // negative with attribute `inverse`.
  double frequency(int64_t pair) const;

 private:
  enum class Scaling { none, linear, dynamic, llama3, yarn, longrope };
  // Chooses the factors of longrope, or changes theta for dynamic, depending on the length of the
  // text.
  void resolve(const Attrs& attrs, int64_t length);
  // Returns s of docs/reference/ops.md, the weight of the pair's unscaled frequency `plain`: the
  // scaled one is plain * ((1 - s) / factor + s).
  double kept(double plain, int64_t pair) const;

  double theta_, sign_, factor_, low_, high_, original_;
  Scaling scaling_;
  // Whether yarn rounds its bounds to whole pairs.
  bool truncate_;
  // The divisors of longrope, one for each pair.
  std::array<double, kMostRopeFactors> factors_;
};

}  // namespace ds
