#include "core/program/levels.h"

#include "core/base/error.h"

namespace ds {

RankLevels::RankLevels(const std::vector<int>& sizes, int stride) {
  for (int size : sizes) {
    require(size > 0, "a level must have at least one rank, got {}", size);
    if (size > 1) groups_.push_back({size, stride});
    stride *= size;
  }
  if (groups_.empty()) groups_.push_back({1, stride});
}

std::vector<int64_t> RankLevels::sizes() const {
  std::vector<int64_t> out;
  for (const RankGroup& g : groups_) out.push_back(g.size);
  return out;
}

RankLevels RankLevels::of_blocks(std::vector<int> bounds, int stride) {
  int inner = 1;
  for (int& bound : bounds) {
    require(bound % inner == 0, "blocks of {} ranks must be made of blocks of {}", bound, inner);
    bound /= inner;
    inner *= bound;
  }
  return RankLevels(bounds, stride);
}

int RankLevels::ways(int cut) const {
  int product = 1;
  for (int level = 0; level < cut; ++level) product *= group(level).size;
  return product;
}

int RankLevels::within(int ranks) const {
  int level = 0;
  while (level < depth() && ways(level + 1) <= ranks) ++level;
  return level;
}

// The positions of a rank in the levels are the digits of a mixed-radix number. The part has the
// same digits in reverse order: level 0, which is cut first, gives the most significant digit.
int RankLevels::part_of(int rank, int cut) const {
  int part = 0;
  for (int level = 0; level < cut; ++level) {
    RankGroup g = group(level);
    part = part * g.size + rank / g.stride % g.size;
  }
  return part;
}

int RankLevels::holder(int part, int cut) const {
  // The inverse of part_of(), for the rank whose positions in the levels from `cut` on are 0.
  int rank = 0;
  for (int level = cut; level-- > 0;) {
    int size = group(level).size;
    rank += part % size * ways(level);
    part /= size;
  }
  return rank;
}

}  // namespace ds
