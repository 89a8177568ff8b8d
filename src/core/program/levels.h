#pragma once
#include <compare>
#include <cstdint>
#include <string>
#include <vector>

#include "core/program/mesh.h"

namespace ds {

// The ranks of a group in nested blocks: level 0 are neighbours (of a node, of a shard group),
// level 1 the ranks with one place in neighbouring blocks of those, and so on; the sizes multiply
// to the ranks of the group. What is cut over the first d levels is held whole by every block of
// ways(d) neighbours. A cut over all levels takes the outermost one last, so that the parts of one
// block of any level are gathered into what lies together: gathers go from the outermost level
// inwards, reductions outwards (ZeRO++, hpZ: arXiv 2306.10209; MiCS: arXiv 2205.00119).
class RankLevels {
 public:
  RankLevels() = default;
  // Innermost first; sizes of 1 are left out, but one rank is one level. Neighbours are `stride`
  // apart.
  explicit RankLevels(const std::vector<int>& sizes, int stride = 1);
  // Blocks of `bounds` neighbours, each a multiple of the one before; the last is the whole group.
  static RankLevels of_blocks(std::vector<int> bounds, int stride = 1);

  int depth() const { return static_cast<int>(groups_.size()); }
  int ranks() const { return ways(depth()); }
  int stride() const { return group(0).stride; }
  // Parts of what is cut over the first `cut` levels.
  int ways(int cut) const;
  // The levels whose blocks have up to `ranks` neighbours.
  int within(int ranks) const;
  // Which of ways(cut) parts the rank holds.
  int part_of(int rank, int cut) const;
  // Which of the group's ranks, counted from 0, is the first that holds a part.
  int holder(int part, int cut) const;
  // [4,2]: ranks of each level, innermost first.
  std::vector<int64_t> sizes() const;
  // The ranks of a level; level < depth().
  RankGroup group(int level) const { return groups_.at(static_cast<size_t>(level)); }

 private:
  std::vector<RankGroup> groups_;
};

}  // namespace ds
