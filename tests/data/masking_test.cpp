#include "data/masking.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "core/base/error.h"
#include "data/dataset.h"
#include "support/temp_folder.h"

namespace ds {
namespace {

constexpr int64_t kVocabulary = 50;
constexpr int32_t kMask = 49, kBefore = 47, kAfter = 48, kSpecial = 7;

class MaskingTest : public testing::Test {
 protected:
  void SetUp() override {
    std::vector<int32_t> tokens;
    for (int32_t i = 0; i < kTokens; ++i) tokens.push_back(i * 13 % 40 + (i % 11 == 0 ? 1 : 0));
    write_token_file(folder_ / "a.tokens", tokens, kVocabulary, std::string(32, '0'));
    file_ = TokenFile(folder_ / "a.tokens");
  }

  static Masking masking(double probability = 0.15, double masked = 0.8, double random = 0.1) {
    return Masking(
        {probability, masked, random, kMask, kVocabulary, {kBefore}, {kAfter}, {kSpecial, kMask}});
  }

  struct Batch {
    std::vector<int32_t> tokens, targets;
    bool operator==(const Batch&) const = default;
  };
  static constexpr int64_t kTokens = 40000, kRow = 32;

  // Returns the batches that the ranks of a world fill in steps [first, last), in the order of
  // leaves.
  Batch steps(const Masking& masking, int64_t world, int64_t first, int64_t last,
              uint64_t seed = 3) const {
    TrainSampler sampler(file_, kRow, seed, 6, &masking);
    Batch out;
    for (int64_t step = first; step < last; ++step) {
      for (int64_t leaf = 0; leaf < world; ++leaf) {
        Batch one{std::vector<int32_t>(static_cast<size_t>(6 / world * kRow)), {}};
        one.targets = one.tokens;
        sampler.rows(step * 6 + leaf * (6 / world), 6 / world, {one.tokens, one.targets});
        out.tokens.insert(out.tokens.end(), one.tokens.begin(), one.tokens.end());
        out.targets.insert(out.targets.end(), one.targets.begin(), one.targets.end());
      }
    }
    return out;
  }

  test::TempFolder folder_;
  TokenFile file_;
};

// Checks that `count` of `tries` is within five standard deviations of a share.
void expect_share(double count, double tries, double share) {
  EXPECT_NEAR(count, tries * share, 5 * std::sqrt(tries * share * (1 - share)))
      << tries << " " << share;
}

TEST_F(MaskingTest, HasTheConfiguredSharesAndFrames) {
  Masking rule = masking();
  EXPECT_EQ(rule.frame(), 2);
  TrainSampler plain(file_, kRow - 2, 3, 6);
  Batch all = steps(rule, 1, 0, 200);
  double ordinary = 0, targets = 0, masked = 0, kept = 0, random = 0;
  std::map<int32_t, int> drawn;
  for (size_t i = 0; i < all.tokens.size(); ++i) {
    size_t row = i / kRow, column = i % kRow;
    if (column == 0 || column == kRow - 1) {
      EXPECT_EQ(all.tokens[i], column == 0 ? kBefore : kAfter);
      EXPECT_EQ(all.targets[i], kNoTarget);
      continue;
    }
    std::vector<int32_t> text(1);
    file_.copy(plain.begin(static_cast<int64_t>(row)) + static_cast<int64_t>(column) - 1, text);
    ordinary += text[0] != kSpecial;
    if (all.targets[i] == kNoTarget) {
      EXPECT_EQ(all.tokens[i], text[0]);
      continue;
    }
    EXPECT_EQ(all.targets[i], text[0]);
    EXPECT_NE(all.targets[i], kSpecial);
    ++targets;
    if (all.tokens[i] == kMask) {
      ++masked;
    } else if (all.tokens[i] == text[0]) {
      ++kept;
    } else {
      ++random;
      ++drawn[all.tokens[i]];
    }
  }
  expect_share(targets, ordinary, 0.15);
  // A random replacement may be the mask, or the token itself.
  double one = 1.0 / kVocabulary;
  expect_share(masked, targets, 0.8 + 0.1 * one);
  expect_share(kept, targets, 0.1 + 0.1 * one);
  expect_share(random, targets, 0.1 * (1 - 2 * one));
  EXPECT_GE(drawn.size(), 40u);
}

TEST_F(MaskingTest, OtherSharesAreRespected) {
  Batch all = steps(masking(1, 0, 0), 1, 0, 2);
  for (size_t i = 0; i < all.tokens.size(); ++i) {
    bool text = i % kRow > 0 && i % kRow < kRow - 1 && all.tokens[i] != kSpecial;
    EXPECT_EQ(all.targets[i], text ? all.tokens[i] : kNoTarget);
  }
  Batch hidden = steps(masking(1, 1, 0), 1, 0, 2);
  for (size_t i = 0; i < hidden.tokens.size(); ++i) {
    EXPECT_EQ(hidden.tokens[i] == kMask, hidden.targets[i] != kNoTarget);
  }
}

// The batches depend neither on the number of ranks nor on a resume, which may start at any step.
TEST_F(MaskingTest, DependsOnSeedEpochAndPositionAlone) {
  Masking rule = masking();
  // The steps cover more than one epoch of 222 steps.
  Batch one = steps(rule, 1, 0, 300);
  EXPECT_EQ(one, steps(rule, 2, 0, 300));
  EXPECT_EQ(one, steps(rule, 3, 0, 300));
  Batch rest = steps(rule, 2, 250, 300);
  EXPECT_TRUE(std::equal(rest.tokens.begin(), rest.tokens.end(), one.tokens.end() - 50 * 6 * kRow));
  EXPECT_TRUE(
      std::equal(rest.targets.begin(), rest.targets.end(), one.targets.end() - 50 * 6 * kRow));
  EXPECT_NE(one, steps(rule, 1, 0, 300, 4));
}

// A position of the text is masked in some epochs and not in others.
TEST_F(MaskingTest, EachEpochDrawsAnew) {
  Masking rule = masking(0.5, 1, 0);
  TrainSampler sampler(file_, kRow, 3, 1, &rule);
  int64_t windows = sampler.epoch_samples();
  // Counts by position in the text.
  std::map<int64_t, int> hidden, seen;
  for (int64_t epoch = 0; epoch < 8; ++epoch) {
    for (int64_t i = 0; i < windows; ++i) {
      int64_t sample = epoch * windows + i, begin = sampler.begin(sample);
      if (begin > 2000) continue;
      std::vector<int32_t> tokens(kRow), targets(kRow);
      sampler.rows(sample, 1, {tokens, targets});
      for (int64_t c = 1; c + 1 < kRow; ++c) {
        ++seen[begin + c - 1];
        hidden[begin + c - 1] += targets[static_cast<size_t>(c)] != kNoTarget;
      }
    }
  }
  double places = 0, mixed = 0;
  for (auto [place, count] : seen) {
    // Special tokens are never masked.
    if (count != 8 || hidden[place] == 0) continue;
    ++places;
    mixed += hidden[place] < 8;
  }
  EXPECT_GT(places, 1500);
  EXPECT_GT(mixed, 0.95 * places);
}

// Each position that its draw makes a target is a target in exactly one held-out row, although the
// last row overlaps the previous one.
TEST_F(MaskingTest, HeldOutRowsHaveEachTargetOnce) {
  Masking rule = masking();
  HeldoutSampler sampler(file_, kRow, &rule);
  constexpr int64_t kWindow = kRow - 2;
  ASSERT_NE(kTokens % kWindow, 0);
  EXPECT_EQ(sampler.rows(), kTokens / kWindow + 1);
  // A single row with the whole text has the same draws.
  std::vector<int32_t> all(kTokens + 2), wanted(all.size()), got(all.size(), kNoTarget);
  rule.fill(file_, {0, 0, 1u << 31, 4}, 0, all, wanted);
  int targets = 0;
  for (int64_t row = 0; row < sampler.rows(); ++row) {
    std::vector<int32_t> tokens(kRow), own(kRow), counted(kRow);
    sampler.fill(row, 0, {tokens, own, {}, counted});
    EXPECT_EQ(std::count(counted.begin(), counted.end(), 1), kRow);
    const int64_t begin = std::min(row * kWindow, kTokens - kWindow);
    for (int64_t i = 1; i + 1 < kRow; ++i) {
      ASSERT_EQ(tokens[static_cast<size_t>(i)], all[static_cast<size_t>(begin + i)]) << row;
      if (own[static_cast<size_t>(i)] == kNoTarget) continue;
      ++targets;
      int32_t& to = got[static_cast<size_t>(begin + i)];
      EXPECT_EQ(to, kNoTarget) << row;
      to = own[static_cast<size_t>(i)];
    }
  }
  EXPECT_EQ(got, wanted);
  EXPECT_GT(targets, 4000);
}

TEST_F(MaskingTest, ImpossibleSettingsAreRefused) {
  Masking rule = masking();
  // Rows of two tokens have no room for text.
  EXPECT_THROW(TrainSampler(file_, 2, 0, 1, &rule), Error);
  EXPECT_THROW(HeldoutSampler(file_, 2, &rule), Error);
  EXPECT_THROW(masking(0), Error);
  EXPECT_THROW(masking(1.5), Error);
}

}  // namespace
}  // namespace ds
