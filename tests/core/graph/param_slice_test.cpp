#include "core/graph/param_slice.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "support/random_slices.h"

namespace ds::test {
namespace {

// Returns, for each element of the local tensor, its index in the whole tensor, found by visiting
// all elements.
std::vector<int64_t> walk(const ParamSlice& slice) {
  int64_t before = 1, behind = 1, extent = slice.shape.empty() ? 1 : slice.shape[slice.dim];
  for (size_t d = 0; d < slice.shape.size(); ++d)
    (d < slice.dim ? before : behind) *= slice.shape[d];
  behind /= extent;
  std::vector<int64_t> out;
  for (int64_t o = 0; o < before; ++o) {
    for (const ParamSlice::Run& run : slice.runs) {
      for (int64_t i = run.first; i < run.first + run.count; ++i) {
        for (int64_t e = 0; e < behind; ++e) out.push_back((o * extent + i) * behind + e);
      }
    }
  }
  return out;
}

TEST(ParamSlice, BlocksAreTheElementsOfEveryRange) {
  int64_t rows = 0;
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    Dice dice(seed);
    for (const ParamSlice& slice : random_slices(dice, 1 + dice.below(4))) {
      slice.check("w");
      std::vector<int64_t> want = walk(slice);
      auto numel = static_cast<int64_t>(want.size());
      ASSERT_EQ(slice.numel(), numel) << seed;
      for (int round = 0; round < 8; ++round) {
        int64_t begin = dice.below(numel + 1), count = dice.below(numel - begin + 1);
        std::vector<int64_t> got(static_cast<size_t>(count), -1);
        std::vector<SliceBlock> blocks = slice.blocks(begin, count);
        EXPECT_LE(blocks.size(), 3 * slice.runs.size()) << seed;
        for (const SliceBlock& block : blocks) {
          rows += block.rows > 1;
          EXPECT_EQ(block.rows == 1, block.stride == 0 && block.local_stride == 0) << seed;
          for_each_run(block, 1 + dice.below(5), [&](int64_t local, int64_t whole, int64_t n) {
            for (int64_t i = 0; i < n; ++i) {
              int64_t& place = got.at(static_cast<size_t>(local - begin + i));
              EXPECT_EQ(place, -1) << seed;
              place = whole + i;
            }
          });
        }
        EXPECT_EQ(got, std::vector<int64_t>(want.begin() + begin, want.begin() + begin + count))
            << seed;
      }
    }
  }
  EXPECT_GT(rows, 200);
}

// Heads 2 and 3 of 8 in a fused query, key and value weight are three runs of columns.
TEST(ParamSlice, RunsOfColumnsAreDividedIntoBlocks) {
  ParamSlice slice{{4, 24}, 1, {{2, 2}, {10, 2}, {18, 2}}, {"tensor"}};
  slice.check("qkv");
  EXPECT_EQ(slice.local_shape(), (std::vector<int64_t>{4, 6}));
  std::vector<SliceBlock> want = {{0, 2, 2, 4, 6, 24}, {2, 10, 2, 4, 6, 24}, {4, 18, 2, 4, 6, 24}};
  EXPECT_EQ(slice.blocks(0, 24), want);
  std::vector<SliceBlock> experts = ParamSlice{{8, 3, 5}, 0, {{4, 2}}, {"expert"}}.blocks(7, 20);
  EXPECT_EQ(experts, (std::vector<SliceBlock>{{7, 67, 20}}));
}

std::string refusal(const ParamSlice& slice) {
  try {
    slice.check("w");
  } catch (const Error& error) {
    EXPECT_EQ(error.status(), DS_ERROR_INVALID_ARGUMENT);
    return error.what();
  }
  return "";
}

TEST(ParamSlice, RunsMustBeInsideAndDisjoint) {
  constexpr int64_t kLarge = INT64_MAX;
  EXPECT_EQ(refusal({{4, 8}, 2, {{0, 1}}}),
            "the slice of parameter 'w' must cut one of 2 dimensions, got 2");
  for (const std::vector<ParamSlice::Run>& runs : {std::vector<ParamSlice::Run>{{6, 3}},
                                                   {{-1, 2}},
                                                   {{0, 0}},
                                                   {{0, 4}, {3, 2}},
                                                   {{1, kLarge}},
                                                   {{kLarge, 1}}}) {
    ParamSlice slice{{4, 8}, 1, runs};
    std::string wanted = "runs of parameter 'w' must not overlap and must lie within 0 to 7, got ";
    EXPECT_EQ(refusal(slice).substr(0, wanted.size()), wanted);
  }
  EXPECT_EQ(refusal({{4, 8}, 1, {{4, 4}, {0, 2}}}), "");
}

}  // namespace
}  // namespace ds::test
