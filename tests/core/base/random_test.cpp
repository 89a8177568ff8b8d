#include "core/base/random.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <vector>

namespace ds {
namespace {

// The known answers of philox4x32-10 that Random123 publishes.
TEST(Philox, MatchesKnownAnswers) {
  using Block = std::array<uint32_t, 4>;
  EXPECT_EQ(philox({0, 0, 0, 0}, {0, 0}), (Block{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox({~0u, ~0u, ~0u, ~0u}, {~0u, ~0u}),
            (Block{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (Block{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(RandomStream, EveryPartOfTheKeyChangesTheStream) {
  std::set<uint32_t> seen;
  RandomStream base{1, 2, 3, 4};
  for (RandomStream s :
       {base, RandomStream{2, 2, 3, 4}, RandomStream{1 + (uint64_t{1} << 32), 2, 3, 4},
        RandomStream{1, 3, 3, 4}, RandomStream{1, 2, 4, 4}, RandomStream{1, 2, 3, 5}}) {
    seen.insert(s.block(0)[0]);
    seen.insert(s.block(1)[0]);
    seen.insert(s.block(uint64_t{1} << 32)[0]);
  }
  EXPECT_EQ(seen.size(), 18u);
  EXPECT_EQ(base.block(9), base.block(9));
}

// Checks many parameters, ops and leaves: no stream that initializes a parameter equals a stream of
// a dropout in the first step.
TEST(RandomStream, ParametersAndDropoutsShareNoStream) {
  std::vector<RandomStream> streams;
  for (uint32_t param = 0; param < 70000; ++param) streams.push_back(init_stream(9, param));
  for (uint32_t bit = 17; bit < 31; ++bit) streams.push_back(init_stream(9, (2u << bit) - 1));
  for (uint32_t op = 32768; op < 65536; ++op) {
    for (uint32_t leaf : {0u, 4095u}) streams.push_back({9, 0, leaf, op});
  }
  std::set<std::array<uint32_t, 4>> first;
  for (const RandomStream& s : streams) first.insert(s.block(0));
  EXPECT_EQ(first.size(), streams.size());
  for (uint32_t param : {0u, 1u, 32767u}) {
    EXPECT_EQ(init_stream(9, param).block(3), (RandomStream{9, 0, 0, param}.block(3)))
        << "as it always was";
  }
}

TEST(RandomStream, UniformIsInRange) {
  EXPECT_EQ(uniform01(0), 0.0f);
  EXPECT_LT(uniform01(0xffffffffu), 1.0f);
  double sum = 0;
  for (uint64_t i = 0; i < 25000; ++i) {
    for (uint32_t w : RandomStream{5, 0, 0, 0}.block(i)) sum += uniform01(w);
  }
  EXPECT_NEAR(sum / 1e5, 0.5, 5 * std::sqrt(1.0 / 12 / 1e5));
}

TEST(RandomStream, NormalElementsHaveTheMomentsOfANormalDistribution) {
  constexpr int n = 200000;
  double m1 = 0, m2 = 0, m3 = 0, m4 = 0, neighbour = 0, before = 0;
  for (int i = 0; i < n; ++i) {
    double x = normal_element({42, 0, 0, 7}, static_cast<uint64_t>(i));
    m1 += x / n;
    m2 += x * x / n;
    m3 += x * x * x / n;
    m4 += x * x * x * x / n;
    neighbour += x * before / n;
    before = x;
  }
  // The bounds below are five standard errors.
  double sigma = 1.0 / std::sqrt(n);
  EXPECT_NEAR(m1, 0.0, 5 * sigma);
  EXPECT_NEAR(m2, 1.0, 5 * std::sqrt(2.0) * sigma);
  EXPECT_NEAR(m3, 0.0, 5 * std::sqrt(15.0) * sigma);
  EXPECT_NEAR(m4, 3.0, 5 * std::sqrt(96.0) * sigma);
  EXPECT_NEAR(neighbour, 0.0, 5 * sigma);
}

}  // namespace
}  // namespace ds
