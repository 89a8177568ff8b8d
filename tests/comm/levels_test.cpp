#include <fmt/core.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "core/base/plugin.h"
#include "support/errors.h"
#include "support/spawn.h"
#include "support/temp_folder.h"

// Tests ranks that belong to several groups. If a rank makes progress in one group, its peers in
// the other groups wait for it; messages number ranks as in the world.
namespace ds {
namespace {

using test::expect_names;
using test::message_of;
using test::pause_ms;

// The timeout in milliseconds. Even on a busy machine, a rank waits less than this for a core.
constexpr int64_t kTimeout = 1000;

// A counter that all ranks share, whether they are threads or processes.
class Count {
 public:
  Count() {
    void* page =
        mmap(nullptr, sizeof *at_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    at_ = new (page) std::atomic<int>(0);
  }
  ~Count() { munmap(at_, sizeof *at_); }
  Count(const Count&) = delete;
  Count& operator=(const Count&) = delete;
  void add() { at_->fetch_add(1); }
  int value() const { return at_->load(); }
  // Waits until the count has reached `value`. Throws if this takes too long.
  void wait_for(int value) const {
    for (int i = 0; at_->load() < value; ++i) {
      if (i == 20000) throw std::runtime_error("the other ranks did not get this far in time");
      pause_ms(2);
    }
  }

 private:
  std::atomic<int>* at_;
};

class Levels : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (tcp() && !load_transport("tcp")) GTEST_SKIP() << "the transport tcp is not built";
  }
  bool tcp() const { return std::string(GetParam()) == "tcp"; }
  // Runs body(communicator) on every rank, which must succeed.
  void on_ranks(int ranks, int64_t timeout_ms, const std::function<void(Communicator&)>& body) {
    std::string name = tcp() ? folder_ / "meet" : fmt::format("levels-{}", getpid());
    auto one = [&](int rank) {
      auto comm = create_communicator(fmt::format("{}://{}", GetParam(), name),
                                      {.rank = rank, .size = ranks, .timeout_ms = timeout_ms});
      body(*comm);
    };
    if (std::string(GetParam()) == "threads") return test::spawn_threads(ranks, one);
    EXPECT_EQ(test::spawn_processes(ranks, one), std::vector<int>(static_cast<size_t>(ranks), 0));
  }

  test::TempFolder folder_;
};

TEST_P(Levels, ARankThatWorksInASplitGroupIsWaitedFor) {
  on_ranks(4, kTimeout, [](Communicator& comm) {
    auto half = comm.split(comm.rank() / 2, 0, "halves");
    for (int i = 0; comm.rank() < 2 && i < 30; ++i) {
      if (comm.rank() == 1) pause_ms(40);
      half->barrier("within");
    }
    comm.barrier("all");
  });
}

// Rank 0 waits for rank 2, which waits for rank 3 in another group; rank 3 is working.
TEST_P(Levels, AChainThatEndsAtAWorkingRankIsWaitedFor) {
  on_ranks(4, kTimeout, [](Communicator& comm) {
    auto half = comm.split(comm.rank() / 2, 0, "halves");
    auto across = comm.split(comm.rank() % 2, 0, "across");
    for (int i = 0; comm.rank() == 3 && i < 30; ++i) {
      pause_ms(40);
      comm.tick();
    }
    half->barrier("within");
    across->barrier("across");
  });
}

// Rank 0 waits for 1, 1 for 2 and 2 for 0. Each pair waits in a group of its own, so no group sees
// different calls.
TEST_P(Levels, AWaitCycleOverGroupsIsAnError) {
  Count ready, named, failed;
  on_ranks(3, kTimeout, [&](Communicator& comm) {
    int me = comm.rank();
    std::vector<std::unique_ptr<Communicator>> groups;
    for (int out = 0; out < 3; ++out)
      groups.push_back(comm.split(me == out ? -1 : 0, 0, fmt::format("without {}", out)));
    ready.add();
    ready.wait_for(3);
    int without = (me + 2) % 3;
    std::string message =
        message_of([&] { groups[static_cast<size_t>(without)]->barrier("turn"); });
    expect_names(message,
                 {fmt::format("rank {} in barrier 'turn' of group 'without {} 0'", me, without)});
    if (message.find("ranks wait for each other") != std::string::npos) named.add();
    failed.add();
    failed.wait_for(tcp() ? 3 : 1);
  });
  EXPECT_GE(named.value(), 1);
}

TEST_P(Levels, MessagesNumberRanksAsInTheWorld) {
  Count ready, seen;
  on_ranks(4, 60000, [&](Communicator& comm) {
    auto half = comm.split(comm.rank() / 2, 0, "halves");
    auto pair = half->split(0, 0, "pairs");
    ready.add();
    // Over tcp, an error ends all groups of the link.
    ready.wait_for(4);
    if (comm.rank() == 2) {
      expect_names(message_of([&] { pair->barrier("x"); }),
                   {"rank 2 in barrier 'x' of group 'pairs 0': rank 3 has left the group"});
      seen.add();
    } else if (comm.rank() < 2) {
      seen.wait_for(1);
    }
  });
}

TEST_P(Levels, DifferentCallsInASplitGroupNameRanksOfTheWorld) {
  Count ready;
  on_ranks(4, 60000, [&](Communicator& comm) {
    auto half = comm.split(comm.rank() / 2, 0, "halves");
    ready.add();
    ready.wait_for(4);
    char in[8] = {}, out[16];
    if (comm.rank() < 2) return;
    std::string message = message_of([&] {
      if (comm.rank() == 2) half->broadcast(in, 8, 1, "w");
      if (comm.rank() == 3) half->all_gather(in, out, 8, "w");
    });
    expect_names(message, {"rank 2 calls broadcast from 3 'w'", "rank 3 calls all_gather 'w'"});
    pause_ms(50);
  });
}

INSTANTIATE_TEST_SUITE_P(All, Levels, testing::Values("threads", "shm", "tcp"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace ds
