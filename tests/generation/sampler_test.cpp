#include "generation/sampler.h"

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "core/base/error.h"
#include "support/errors.h"

namespace ds {
namespace {

const std::vector<float> kLogits{0.0f, 2.0f, 1.0f, 2.0f};

TEST(sampler, GreedyChoosesTheFirstLargest) { EXPECT_EQ(sample_token(kLogits, {}, 0), 1); }

TEST(sampler, IsAFunctionOfSeedAndPosition) {
  SamplingOptions options{1.0, 0, 7};
  std::vector<int32_t> first, again, other;
  for (int64_t p = 0; p < 64; ++p) {
    first.push_back(sample_token(kLogits, options, p));
    again.push_back(sample_token(kLogits, options, p));
    other.push_back(sample_token(kLogits, {1.0, 0, 8}, p));
  }
  EXPECT_EQ(first, again);
  EXPECT_NE(first, other);
}

TEST(sampler, FrequenciesFollowTheSoftmax) {
  constexpr int64_t kDraws = 20000;
  std::vector<double> count(kLogits.size());
  for (int64_t p = 0; p < kDraws; ++p)
    ++count[static_cast<size_t>(sample_token(kLogits, {0.5, 0, 3}, p))];
  double sum = 0;
  for (float l : kLogits) sum += std::exp(l / 0.5);
  for (size_t i = 0; i < count.size(); ++i) {
    double p = std::exp(kLogits[i] / 0.5) / sum;
    EXPECT_NEAR(count[i] / kDraws, p, 4 * std::sqrt(p * (1 - p) / kDraws)) << i;
  }
}

TEST(sampler, TopKKeepsTheKMostProbable) {
  for (int64_t p = 0; p < 200; ++p) {
    int32_t token = sample_token(kLogits, {5.0, 2, 1}, p);
    EXPECT_TRUE(token == 1 || token == 3) << token;
  }
}

TEST(sampler, RefusesBadOptionsAndLogits) {
  EXPECT_THROW(sample_token(kLogits, {-1.0, 0, 0}, 0), Error);
  EXPECT_THROW(sample_token(kLogits, {1.0, -1, 0}, 0), Error);
  EXPECT_THROW(sample_token({}, {}, 0), Error);
  float infinite = std::numeric_limits<float>::infinity();
  test::expect_names(test::message_of(
                         [&] {
                           sample_token(std::vector<float>{0, infinite}, {}, 0);
                         },
                         DS_ERROR_NUMERIC),
                     {"position 0", "inf", "try dtype bf16 or f32"});
  EXPECT_THROW(sample_token(std::vector<float>{-infinite, -infinite}, {}, 0), Error);
  EXPECT_EQ(sample_token(std::vector<float>{-infinite, 0}, {}, 0), 1);
}

// A single NaN is an error for every method of sampling; the message names the position and the
// token.
TEST(sampler, RefusesNanLogits) {
  float nan = std::numeric_limits<float>::quiet_NaN();
  for (size_t at = 0; at < 3; ++at) {
    std::vector<float> logits{1.0f, 2.0f, 0.5f};
    logits[at] = nan;
    for (const SamplingOptions& options :
         {SamplingOptions{0.0, 0, 0}, SamplingOptions{1.0, 0, 0}, SamplingOptions{0.7, 1, 3}}) {
      try {
        sample_token(logits, options, 5);
        ADD_FAILURE() << at;
      } catch (const Error& e) {
        EXPECT_EQ(e.status(), DS_ERROR_NUMERIC);
        EXPECT_NE(
            std::string(e.what()).find(fmt::format("position 5 the logit of token {} is NaN", at)),
            std::string::npos)
            << e.what();
        EXPECT_NE(std::string(e.what()).find("try dtype bf16 or f32"), std::string::npos)
            << e.what();
      }
    }
  }
}

}  // namespace
}  // namespace ds
