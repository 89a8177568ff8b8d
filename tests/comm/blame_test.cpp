#include <gtest/gtest.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <set>
#include <string>

#include "comm/communicator.h"
#include "core/base/plugin.h"
#include "support/errors.h"
#include "support/spawn.h"
#include "support/temp_folder.h"

// Tests which rank each survivor names to the launcher when one rank ends the group.
namespace ds {
namespace {

class Blames : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (over_tcp() && !load_transport("tcp")) GTEST_SKIP() << "the transport tcp is not built";
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends_), 0);
    struct stat status {};
    ASSERT_EQ(fstat(ends_[0], &status), 0);
    setenv("DS_LAUNCHER_PIPE", fmt::format("{}:{}", ends_[0], status.st_ino).c_str(), 1);
    setenv("WORLD_SIZE", "3", 1);
  }
  void TearDown() override {
    for (const char* name : {"DS_LAUNCHER_PIPE", "WORLD_SIZE"}) unsetenv(name);
    for (int end : ends_) close(end);
  }
  bool over_tcp() const { return std::string(GetParam()) == "tcp"; }

  // Runs three ranks, the last of which ends the group by `end`, and returns the messages that they
  // sent to the launcher.
  std::set<std::string> heard(const std::function<void(Communicator&)>& end) {
    std::string url =
        over_tcp() ? "tcp://" + folder_ / "meet" : fmt::format("shm://blames-{}", getpid());
    test::spawn_processes(3, [&](int rank) {
      setenv("RANK", std::to_string(rank).c_str(), 1);
      auto comm = create_communicator(url, {.rank = rank, .size = 3});
      comm->barrier("first");
      if (rank == 2) return end(*comm);
      test::message_of([&] { comm->barrier("second"); });
    });
    std::set<std::string> words;
    char text[32];
    for (ssize_t got; (got = recv(ends_[1], text, sizeof text, MSG_DONTWAIT)) > 0;)
      words.emplace(text, static_cast<size_t>(got));
    return words;
  }

  int ends_[2] = {-1, -1};
  test::TempFolder folder_;
};

TEST_P(Blames, ADeadRankIsNamedByEverySurvivor) {
  std::set<std::string> words = heard([](Communicator&) { ::raise(SIGKILL); });
  EXPECT_TRUE(words.count("0 2") + words.count("0 1") != 0 &&
              words.count("1 2") + words.count("1 0") != 0);
  EXPECT_TRUE(words.count("0 2") + words.count("1 2") != 0);
}

TEST_P(Blames, ARankThatAbortsIsNamedByTheOthersOnly) {
  std::set<std::string> words = heard([](Communicator& comm) { comm.abort("the disk is full"); });
  EXPECT_EQ(words, (std::set<std::string>{"0 2", "1 2"}));
}

INSTANTIATE_TEST_SUITE_P(All, Blames, testing::Values("shm", "tcp"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace ds
