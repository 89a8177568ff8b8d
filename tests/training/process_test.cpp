#include <gtest/gtest.h>

#include <regex>

#include "support/processes.h"

namespace ds::test::process_test {
namespace {

constexpr int kSteps = 20;

TEST(Processes, FourRanksHaveTheBitsOfOne) {
  Point one;
  one.reproducible = true;
  one.compute = DS_DTYPE_F32;
  one.world = 1;
  Point four = one;
  four.world = 4;
  four.stage = 3;
  std::string hash = train_threads(one, kSteps).bits();
  for (const RankReport& r : train_processes(four, kSteps))
    EXPECT_TRUE(r.ok && r.text == hash) << r.text;
}

TEST(Processes, ADeadRankIsNamedBySurvivors) {
  Point p;
  p.stage = 3;
  std::vector<RankReport> reports = train_processes(p, kSteps, 1);
  EXPECT_FALSE(reports[0].ok);
  EXPECT_LT(reports[0].seconds, 5.0) << "the death must be noticed within 5 s";
  std::regex names(
      "rank 0, step instruction [0-9]+ \\((all_gather|reduce_scatter|all_reduce) [^ ]+\\): .*rank "
      "1 is dead");
  EXPECT_TRUE(std::regex_search(reports[0].text, names)) << reports[0].text;
}

}  // namespace
}  // namespace ds::test::process_test
