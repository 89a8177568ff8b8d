#pragma once
#include <algorithm>
#include <cstdint>
#include <span>

#include "kernels/cpu/cpu.h"

namespace ds::cpu {

// The mean of term(r) over the rows that have a target, 0 when none has. The team calls term once for every
// row, `block` rows a task; the terms are added in row order in f64.
template <typename Term>
float mean_loss(ThreadTeam& team, std::span<const int32_t> targets, int64_t block, const Term& term) {
  auto* terms = reinterpret_cast<float*>(team.scratch(0).data());
  auto room = static_cast<int64_t>(team.scratch_bytes() / sizeof(float));
  auto rows = static_cast<int64_t>(targets.size()), counted = int64_t{0};
  double total = 0;
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
  return static_cast<float>(counted == 0 ? 0.0 : total / static_cast<double>(counted));
}

}  // namespace ds::cpu
