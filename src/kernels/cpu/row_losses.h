#pragma once
#include <algorithm>
#include <cstdint>
#include <span>

#include "kernels/cpu/cpu.h"
#include "kernels/formulas/row_loss.h"

namespace ds::cpu {

// Stores the mean or the sum of the losses term(r) of the rows that have a target, or the losses of
// all rows, where rows without a target have 0. `reduction` selects one of the three. The mean is 0
// if no row has a target. The team calls term() once for every row, `block` rows per task. The
// terms are added in row order in f64.
template <typename Term>
void reduce_losses(ThreadTeam& team, Reduction reduction, std::span<const int32_t> targets,
                   int64_t block, float* out, const Term& term) {
  auto rows = static_cast<int64_t>(targets.size()), counted = int64_t{0};
  if (reduction == Reduction::none) {
    return for_blocks(team, rows, block, [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) {
        const float loss = term(r);
        out[r] = targets[static_cast<size_t>(r)] < 0 ? 0 : loss;
      }
    });
  }
  auto* terms = reinterpret_cast<float*>(team.scratch(0).data());
  auto room = static_cast<int64_t>(team.scratch_bytes() / sizeof(float));
  double total = 0;
  // Process as many rows at a time as scratch has room for.
  for (int64_t first = 0; first < rows; first += room) {
    int64_t count = std::min(room, rows - first);
    for_blocks(team, count, block, [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) terms[r] = term(first + r);
    });
    for (int64_t r = 0; r < count; ++r) {
      if (targets[static_cast<size_t>(first + r)] < 0) continue;
      total += static_cast<double>(terms[r]);
      ++counted;
    }
  }
  if (reduction == Reduction::mean)
    total = counted == 0 ? 0.0 : total / static_cast<double>(counted);
  out[0] = static_cast<float>(total);
}

}  // namespace ds::cpu
