#pragma once
#include <compare>
#include <cstdint>
#include <string>
#include <vector>

#include "core/program/mesh.h"

namespace ds {

// The ranks of a group in nested blocks. A block of level 0 consists of neighbouring ranks (of a
// node, of a shard group), a block of level 1 of neighbouring blocks of level 0, and so on. The
// product of the sizes is the number of ranks. A tensor cut over the first d levels is whole in
// every block of ways(d) neighbours. It is cut over level 0 first and over the outermost level
// last, so that each step of a gather, which goes from the outermost level inwards, fills
// contiguous memory; reductions go outwards (ZeRO++, hpZ: arXiv 2306.10209; MiCS: arXiv
// 2205.00119).
class RankLevels {
 public:
  RankLevels() = default;
  // `sizes` are the sizes of the levels, innermost first. Levels of size 1 are left out, except
  // that a single rank has one level. The numbers of neighbouring ranks differ by `stride`.
  explicit RankLevels(const std::vector<int>& sizes, int stride = 1);
  // Returns levels by the number of ranks in a block of each level, innermost first. Each number
  // must be a multiple of the number before it; the last is the size of the group.
  static RankLevels of_blocks(std::vector<int> bounds, int stride = 1);

  int depth() const { return static_cast<int>(groups_.size()); }
  int ranks() const { return ways(depth()); }
  int stride() const { return group(0).stride; }
  // Returns the number of parts of a tensor that is cut over the first `cut` levels.
  int ways(int cut) const;
  // Returns the number of levels whose blocks have at most `ranks` ranks.
  int within(int ranks) const;
  // Returns the index, below ways(cut), of the part that the rank holds.
  int part_of(int rank, int cut) const;
  // Returns the first rank that holds a part, as an index in the group.
  int holder(int part, int cut) const;
  // Returns the number of ranks of each level, innermost first: [4,2].
  std::vector<int64_t> sizes() const;
  // Returns the group of a level, which joins blocks of the previous level; level < depth().
  RankGroup group(int level) const { return groups_.at(static_cast<size_t>(level)); }

 private:
  std::vector<RankGroup> groups_;
};

}  // namespace ds
