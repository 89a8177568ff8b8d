#pragma once
#include <cstdint>
#include <vector>

#include "core/graph/param_slice.h"
#include "support/dice.h"

namespace ds::test {

// Draws a tensor of random shape and divides it along one dimension over `ranks` ranks. Each rank
// gets any number of intervals in any order, perhaps none; together they cover every index once.
// Some tensors are not divided: then the result has one slice.
inline std::vector<ParamSlice> random_slices(Dice& dice, int64_t ranks) {
  ParamSlice whole;
  for (int64_t d = 0, rank = dice.below(4); d < rank; ++d) whole.shape.push_back(1 + dice.below(9));
  if (whole.shape.empty() || ranks == 1 || dice.one_in(4)) return {ParamSlice::whole(whole.shape)};
  whole.dim = static_cast<size_t>(dice.below(static_cast<int64_t>(whole.shape.size())));
  whole.axes = {"tensor"};
  std::vector<ParamSlice> out(static_cast<size_t>(ranks), whole);
  for (int64_t at = 0; at < whole.shape[whole.dim];) {
    int64_t count = 1 + dice.below(whole.shape[whole.dim] - at);
    auto& runs = out[static_cast<size_t>(dice.below(ranks))].runs;
    runs.insert(runs.begin() + dice.below(static_cast<int64_t>(runs.size()) + 1), {at, count});
    at += count;
  }
  return out;
}

}  // namespace ds::test
