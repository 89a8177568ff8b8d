#include "data/baselines.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "core/base/error.h"
#include "core/base/random.h"
#include "data/token_file.h"
#include "support/temp_folder.h"

namespace ds {
namespace {

TokenFile file_of(const std::string& path, const std::vector<int32_t>& tokens, int64_t vocab) {
  write_token_file(path, tokens, vocab, std::string(32, '0'));
  return TokenFile(path);
}

TEST(Baselines, EqualValuesComputedByHand) {
  test::TempFolder folder;
  // The counts are {3, 2, 1}. Pair 01 occurs twice, and 10, 02 and 20 occur once each. The held-out
  // text is 0 1 2.
  TokenFile train = file_of(folder / "t", {0, 1, 0, 2, 0, 1}, 3);
  TokenFile heldout = file_of(folder / "h", {0, 1, 2}, 3);
  Baselines b = measure_baselines(train, heldout);
  double p1 = 3.0 / 9, p2 = 2.0 / 9;
  EXPECT_NEAR(b.unigram, -(std::log(p1) + std::log(p2)) / 2, 1e-12);
  double p01 = (2 + 2 * p1) / (3 + 2), p12 = (0 + 1 * p2) / (1 + 1);
  EXPECT_NEAR(b.bigram, -(std::log(p01) + std::log(p12)) / 2, 1e-12);
}

TEST(Baselines, ApproachKnownEntropies) {
  test::TempFolder folder;
  // For uniform tokens both losses are near ln 4. A noisy cycle can be predicted by the bigram
  // model but not by the unigram model.
  std::vector<int32_t> uniform, cycle;
  for (uint32_t i = 0; i < 200000; ++i) {
    auto w = philox({i, 0, 0, 0}, {11, 0});
    uniform.push_back(static_cast<int32_t>(w[0] % 4));
    bool jump = w[1] % 4 == 0;
    cycle.push_back(i == 0 ? 0 : (jump ? static_cast<int32_t>(w[2] % 4) : (cycle.back() + 1) % 4));
  }
  auto measure = [&](const std::vector<int32_t>& tokens) {
    size_t cut = tokens.size() / 2;
    TokenFile train =
        file_of(folder / "t", {tokens.begin(), tokens.begin() + static_cast<long>(cut)}, 4);
    TokenFile heldout =
        file_of(folder / "h", {tokens.begin() + static_cast<long>(cut), tokens.end()}, 4);
    return measure_baselines(train, heldout);
  };
  Baselines flat = measure(uniform);
  EXPECT_NEAR(flat.unigram, std::log(4.0), 2e-3);
  EXPECT_NEAR(flat.bigram, std::log(4.0), 2e-3);
  Baselines ring = measure(cycle);
  double next = 0.75 + 0.0625, other = 0.0625;
  EXPECT_NEAR(ring.unigram, std::log(4.0), 2e-3);
  EXPECT_NEAR(ring.bigram, -(next * std::log(next) + 3 * other * std::log(other)), 0.02);
}

TEST(Baselines, RefuseBadInput) {
  test::TempFolder folder;
  TokenFile train = file_of(folder / "t", {0, 1}, 3);
  TokenFile shorter = file_of(folder / "h", {0}, 3);
  TokenFile other = file_of(folder / "o", {0, 1}, 4);
  EXPECT_THROW(measure_baselines(train, shorter), Error);
  EXPECT_THROW(measure_baselines(train, other), Error);
}

}  // namespace
}  // namespace ds
