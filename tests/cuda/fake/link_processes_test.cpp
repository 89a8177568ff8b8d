// Tests ranks that are processes with a GPU each, linked by a library. They are forked, so these
// tests must run first in a process that has run nothing else; GoogleTest runs suites named
// *DeathTest first.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "comm/communicator.h"
#include "core/base/plugin.h"
#include "cuda/fake/group_rank.h"
#include "support/errors.h"
#include "support/fake_cuda.h"
#include "support/processes.h"
#include "support/same_bits.h"
#include "support/temp_folder.h"

namespace ds::test {
namespace {

Point of_processes(int stage, int world) {
  Point p;
  p.stage = stage;
  p.world = world;
  p.leaves = world == 3 ? 3 : 4;
  // In f32, the sum of three values depends on the order.
  if (world == 3) p.compute = DS_DTYPE_F32;
  p.device = "cuda:*";
  return p;
}

class FakeLinksDeathTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!FakeCuda::find()) GTEST_SKIP() << "the plugin is not built";
  }
};

// No warning is logged, so nothing was staged through host memory.
TEST_F(FakeLinksDeathTest, LinkedProcessesHaveTheBitsOfStagedThreads) {
  for (const Point& p : {of_processes(0, 2), of_processes(2, 4), of_processes(3, 3)}) {
    Point q = p;
    testing::internal::CaptureStderr();
    const std::vector<RankReport> linked = train_processes(q, 1);
    const std::string silent = testing::internal::GetCapturedStderr();
    EXPECT_EQ(silent.find("host memory"), std::string::npos) << silent;
    q.device = "cuda:0";
    testing::internal::CaptureStderr();
    const std::vector<RankReport> staged = train_processes(q, 1);
    const std::string warned = testing::internal::GetCapturedStderr();
    EXPECT_NE(warned.find("collectives go through host memory, because ranks 0 and 1 share a GPU"),
              std::string::npos)
        << warned;
    for (size_t r = 0; r < linked.size(); ++r) {
      EXPECT_TRUE(linked[r].ok) << linked[r].text;
      EXPECT_EQ(linked[r].text, staged[r].text) << q.name() << ", rank " << r;
    }
  }
}

// The rank is killed between two instructions, while the streams are full of work for which the
// others wait.
TEST_F(FakeLinksDeathTest, AKilledRankIsNamed) {
  for (size_t at : {40, 150, 300}) {
    const std::vector<RankReport> ranks = train_processes(of_processes(3, 3), 3, 1, at);
    for (size_t r : {size_t{0}, size_t{2}}) {
      EXPECT_FALSE(ranks[r].ok) << at;
      EXPECT_LT(ranks[r].seconds, 60) << at;
      expect_names(ranks[r].text, {"rank 1 is dead"});
    }
  }
}

// After the last call, ranks no longer communicate: rank 0 waits for a queue, which waits for rank
// 1's part, but rank 1 has died or aborted the group.
TEST_F(FakeLinksDeathTest, ARankThatWaitsForAQueueNoticesFailures) {
  const TempFolder folder;
  const auto rank_of = [](const std::string& url, int rank, bool dies) {
    FakeCuda::find()->fail_links("hang:1:1");
    alarm(60);
    CommOptions options;
    options.rank = rank;
    options.size = 2;
    const std::unique_ptr<Communicator> comm = create_communicator(url, options);
    GroupRank own(*comm, 1 << 20, Gpus::own);
    own.run(Group::Op::all_gather, own.arena->address(), own.arena->address() + 4096, 100,
            DS_DTYPE_F32, "wte");
    if (rank == 1) {
      if (dies) kill(getpid(), SIGKILL);
      own.give_up("the disk is full");
      for (;;) pause();
    }
    const std::string text = message_of([&] { own.finish(); });
    own.give_up(text);
    std::fprintf(stderr, "%s\n", text.c_str());
    std::exit(0);
  };
  const std::string ended = "the group was ended by rank 1: the disk is full",
                    shared = "shm://waits-" + std::to_string(getpid()),
                    linked = "tcp://" + folder / "waits";
  std::vector<std::pair<std::string, std::string>> cases{{shared, "rank 1 is dead"},
                                                         {shared + "e", ended}};
  if (load_transport("tcp")) {
    cases.emplace_back(linked, "rank 1 has left the group");
    cases.emplace_back(linked + "e", ended);
  }
  for (const auto& [url, what] : cases) {
    const pid_t other = fork();
    ASSERT_GE(other, 0);
    if (other == 0) rank_of(url, 1, what != ended);
    EXPECT_EXIT(rank_of(url, 0, false), testing::ExitedWithCode(0),
                "rank 0 in all_gather 'wte': " + what);
    kill(other, SIGKILL);
    waitpid(other, nullptr, 0);
  }
}

// Over TCP, the control plane uses messages instead of shared memory.
TEST_F(FakeLinksDeathTest, OverTcpRanksHaveTheSameBitsAndAKilledOneIsNamed) {
  if (!load_transport("tcp")) GTEST_SKIP() << "the transport tcp is not built";
  const TempFolder folder;
  const Point p = of_processes(3, 3);
  const std::vector<RankReport> shared = train_processes(p, 1);
  for (const RankReport& report : train_processes(p, 1, "tcp://" + folder / "bits"))
    EXPECT_EQ(report.text, shared[0].text);
  for (size_t at : {60, 300}) {
    const std::vector<RankReport> ranks =
        train_processes(p, 3, "tcp://" + folder / ("killed" + std::to_string(at)), 1, at);
    for (size_t r : {size_t{0}, size_t{2}}) {
      EXPECT_FALSE(ranks[r].ok) << at;
      EXPECT_LT(ranks[r].seconds, 60) << at;
      expect_names(ranks[r].text, {"rank 1 has left the group"});
    }
  }
}

}  // namespace
}  // namespace ds::test
