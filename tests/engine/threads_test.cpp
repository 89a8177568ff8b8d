#include "engine/threads.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "engine/engine.h"
#include "support/affinity.h"
#include "support/models.h"

namespace ds {
namespace {

using Cpus = std::vector<int>;
const Cpus kEight{0, 1, 2, 3, 8, 9, 10, 11};

TEST(CpusOfRank, RanksShareTheMaskEvenly) {
  EXPECT_EQ(cpus_of_rank(kEight, 16, 0, 1, 8), kEight);
  EXPECT_EQ(cpus_of_rank(kEight, 16, 0, 2, 4), (Cpus{0, 1, 2, 3}));
  EXPECT_EQ(cpus_of_rank(kEight, 16, 1, 2, 4), (Cpus{8, 9, 10, 11}));
  EXPECT_EQ(cpus_of_rank(kEight, 8, 2, 3, 2), (Cpus{8, 9}));
}

TEST(CpusOfRank, ARankWithSeparateCpusKeepsThem) {
  EXPECT_EQ(cpus_of_rank(kEight, 64, 3, 4, 8), kEight);
  // All CPUs of the host are shared.
  EXPECT_EQ(cpus_of_rank(kEight, 8, 3, 4, 8), Cpus{});
}

TEST(CpusOfRank, FewerOrMoreThreadsAreNotPinned) {
  EXPECT_EQ(cpus_of_rank(kEight, 64, 0, 1, 4), Cpus{});
  EXPECT_EQ(cpus_of_rank(kEight, 64, 0, 2, 3), Cpus{});
  EXPECT_EQ(cpus_of_rank(kEight, 64, 0, 1, 9), Cpus{});
  EXPECT_EQ(cpus_of_rank({0}, 1, 0, 4, 1), Cpus{});
  // Rank 4 does not exist on a host with 4 ranks.
  EXPECT_EQ(cpus_of_rank(kEight, 64, 4, 4, 2), Cpus{});
}

TEST(CpusOfRank, PinThreadsIsRespected) {
  Config config;
  Cpus usable = usable_cpus();
  int threads = static_cast<int>(usable.size());
  EXPECT_EQ(cpus_of_rank(config, 0, 1, threads), usable);
  config.pin_threads = false;
  EXPECT_EQ(cpus_of_rank(config, 0, 1, threads), Cpus{});
}

TEST(Engine, PinsItsWorkersAndNotItsCaller) {
  Cpus usable = usable_cpus();
  if (usable.size() < 2) GTEST_SKIP() << "one CPU";
  for (bool pinned : {true, false}) {
    Config config = test::make_config(0, 1, 1);
    config.pin_threads = pinned;
    EngineOptions options;
    options.threads = static_cast<int>(usable.size());
    auto before = test::allowed_cpus();
    auto comm = create_communicator("self", {});
    Engine engine(config, test::make_mlp(2, 16, 4), *comm, options);
    auto after = test::allowed_cpus();
    for (const auto& [thread, cpus] : before) EXPECT_EQ(after[thread], cpus);
    std::string everything = before[std::to_string(getpid())];
    std::vector<std::string> expected(usable.size() - 1, everything);
    for (size_t t = 1; pinned && t < usable.size(); ++t)
      expected[t - 1] = std::to_string(usable[t]);
    std::sort(expected.begin(), expected.end());
    EXPECT_EQ(test::allowed_since(before), expected) << "pinned " << pinned;
  }
}

}  // namespace
}  // namespace ds
