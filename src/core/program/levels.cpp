#include "core/program/levels.h"

#include <fmt/format.h>

#include "core/base/error.h"

namespace ds {

std::string RankGroup::name() const { return fmt::format("{}x{}", size, stride); }

RankLevels::RankLevels(const std::vector<int>& sizes) {
  for (int size : sizes) {
    require(size > 0, "a level must have at least one rank, got {}", size);
    if (size > 1) sizes_.push_back(size);
  }
  if (sizes_.empty()) sizes_.push_back(1);
}

RankLevels RankLevels::of_blocks(std::vector<int> bounds) {
  int inner = 1;
  for (int& bound : bounds) {
    require(bound % inner == 0, "blocks of {} ranks must be made of blocks of {}", bound, inner);
    bound /= inner;
    inner *= bound;
  }
  return RankLevels(bounds);
}

int RankLevels::ways(int cut) const {
  int product = 1;
  for (int level = 0; level < cut; ++level) product *= sizes_[static_cast<size_t>(level)];
  return product;
}

int RankLevels::within(int ranks) const {
  int level = 0;
  while (level < depth() && ways(level + 1) <= ranks) ++level;
  return level;
}

// The number of the rank, its digits read the other way round.
int RankLevels::part(int rank, int cut) const {
  int part = 0;
  for (int level = 0; level < cut; ++level) {
    int size = sizes_[static_cast<size_t>(level)];
    part = part * size + rank / ways(level) % size;
  }
  return part;
}

int RankLevels::holder(int part, int cut) const {
  int rank = 0;
  for (int level = cut; level-- > 0;) {
    int size = sizes_[static_cast<size_t>(level)];
    rank += part % size * ways(level);
    part /= size;
  }
  return rank;
}

}  // namespace ds
