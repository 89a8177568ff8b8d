#pragma once
#include <cstdint>

#include "core/base/round.h"
#include "core/device/scalars.h"

namespace ds {

// The constants of a step of `muon_momentum`, formed in f64 and rounded once.
struct MuonMomentum {
  float grad_scale, beta, one_beta;
  explicit MuonMomentum(const StepScalars& s)
      : grad_scale(static_cast<float>(s.grad_scale)),
        beta(static_cast<float>(s.group.momentum)),
        one_beta(static_cast<float>(1 - s.group.momentum)) {}
};

// The squares of a matrix of `count` elements are added in at most so many pieces, of so many
// elements each.
inline constexpr int64_t kUnitPieces = 64;
inline int64_t unit_piece(int64_t count) {
  return 256 * ceil_div(ceil_div(count, kUnitPieces), 256);
}

}  // namespace ds
