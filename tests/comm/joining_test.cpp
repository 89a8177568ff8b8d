#include <fmt/core.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "comm/communicator.h"
#include "support/errors.h"
#include "support/refused_call.h"
#include "support/spawn.h"

// Tests that ranks which join twice, disagree on the size, form a second group of the same name or
// stop for longer than the time-out cause an error that names the fault, and that names and
// descriptors are released.
namespace ds::joining_test {
namespace {

// The ranks of a test must start within this number of milliseconds.
constexpr int64_t kJoin = 800;

using test::expect_names;
using test::message_of;
using test::pause_ms;

// Returns the state letter of a process, 'T' if it is stopped, and 'X' if it has ended.
char state_of(int pid) {
  std::ifstream file(fmt::format("/proc/{}/stat", pid));
  std::string text{std::istreambuf_iterator<char>(file), {}};
  size_t end = text.rfind(')');
  return end == std::string::npos || end + 2 >= text.size() ? 'X' : text[end + 2];
}

bool name_in_use(const std::string& url) {
  std::ifstream sockets("/proc/net/unix");
  std::string all{std::istreambuf_iterator<char>(sockets), {}};
  return all.find("." + url.substr(url.find("://") + 3) + "\n") != std::string::npos;
}

size_t open_files() {
  auto all = std::filesystem::directory_iterator("/proc/self/fd");
  return static_cast<size_t>(std::distance(begin(all), end(all)));
}

// Checks that ranks can form a group and leave it without an error.
void expect_meeting(const std::string& url, int ranks) {
  auto one = [&](int rank) {
    auto comm = create_communicator(url, {.rank = rank, .size = ranks});
    comm->barrier("met");
  };
  if (url.starts_with("threads")) return test::spawn_threads(ranks, one);
  EXPECT_EQ(test::spawn_processes(ranks, one), std::vector<int>(static_cast<size_t>(ranks), 0));
  EXPECT_FALSE(name_in_use(url));
}

class Joining : public testing::TestWithParam<const char*> {
 protected:
  std::string url() const { return fmt::format("{}://joining-{}", GetParam(), getpid()); }
  bool threads() const { return std::string(GetParam()) == "threads"; }
  // Runs body(k) for each k in [0, count) in parallel, in threads or in processes, which must
  // succeed.
  void side_by_side(int count, const std::function<void(int)>& body) {
    if (threads()) return test::spawn_threads(count, body);
    EXPECT_EQ(test::spawn_processes(count, body), std::vector<int>(static_cast<size_t>(count), 0));
  }
};

TEST_P(Joining, ARankThatJoinsTwiceIsNamed) {
  std::string name = url();
  size_t files = open_files();
  // The group has three ranks: rank 0 joins once, and two join as rank 1.
  side_by_side(3, [&](int k) {
    int rank = k == 0 ? 0 : 1;
    std::string message =
        message_of([&] { create_communicator(name, {.rank = rank, .size = 3, .join_ms = kJoin}); });
    bool refused = message.find("rank 1 already") != std::string::npos ||
                   message.find("rank 1 has joined already") != std::string::npos;
    bool waited = message.find("within 800 ms") != std::string::npos;
    EXPECT_TRUE(refused || (waited && message.find("of 3 ranks") != std::string::npos)) << message;
    EXPECT_TRUE(waited || k != 0) << message;
  });
  EXPECT_EQ(open_files(), files);
  expect_meeting(name, 2);
}

TEST_P(Joining, ASecondRankZeroIsRefused) {
  std::string name = url();
  // If ranks are processes, each increments its own copy.
  std::atomic<int> refused{0};
  side_by_side(2, [&](int) {
    std::string message =
        message_of([&] { create_communicator(name, {.rank = 0, .size = 2, .join_ms = kJoin}); });
    bool other = message.find("rank 0 has joined already") != std::string::npos ||
                 message.find("rank 0 already") != std::string::npos ||
                 message.find("another group of this name is forming") != std::string::npos;
    refused += other;
    EXPECT_TRUE(other || message.find("within 800 ms") != std::string::npos) << message;
  });
  EXPECT_EQ(refused, threads() ? 1 : 0);
  expect_meeting(name, 2);
}

TEST_P(Joining, RanksThatDisagreeOnTheWorldSizeAreRefused) {
  std::string name = url();
  size_t files = open_files();
  side_by_side(2, [&](int rank) {
    std::string message;
    try {
      create_communicator(name, {.rank = rank, .size = 2 + rank, .join_ms = kJoin});
      ADD_FAILURE() << "no error";
    } catch (const Error& error) {
      message = error.what();
    }
    bool sizes =
        message.find("size 3") != std::string::npos || message.find("size 2") != std::string::npos;
    EXPECT_TRUE(sizes || message.find("within 800 ms") != std::string::npos) << message;
  });
  EXPECT_EQ(open_files(), files);
  expect_meeting(name, 3);
}

TEST_P(Joining, ANameCanBeReused) {
  for (int ranks : {2, 3, 2}) expect_meeting(url(), ranks);
}

INSTANTIATE_TEST_SUITE_P(All, Joining, testing::Values("threads", "shm"),
                         [](const auto& info) { return std::string(info.param); });

// A rank that is stopped for less than the timeout is waited for. After a longer stop it is named
// as making no progress.
TEST(ShmJoining, AStoppedRankIsWaitedForUntilTheTimeout) {
  for (int64_t timeout : {30000, 300}) {
    bool named = timeout == 300;
    std::string url = fmt::format("shm://stopped-{}", getpid());
    std::vector<int> codes = test::spawn_processes(2, [&](int rank) {
      auto comm = create_communicator(url, {.rank = rank, .size = 2, .timeout_ms = timeout});
      int32_t own = getpid(), pids[2] = {};
      comm->all_gather(&own, pids, sizeof own, "pids");
      if (rank == 1) {
        kill(own, SIGSTOP);
        if (!named) return comm->barrier("stop");
        return expect_names(
            message_of([&] { comm->barrier("stop"); }),
            {"rank 1 in barrier 'stop'", "ended by rank 0", "no progress for 300 ms"});
      }
      std::thread waker([&] {
        while (state_of(pids[1]) != 'T') pause_ms(5);
        pause_ms(named ? 900 : 200);
        kill(pids[1], SIGCONT);
      });
      std::string message = named ? message_of([&] { comm->barrier("stop"); }) : "";
      if (!named) comm->barrier("stop");
      waker.join();
      if (named)
        expect_names(message,
                     {"rank 0 in barrier 'stop'", "rank 1 has made no progress for 300 ms"});
      pause_ms(100);
    });
    EXPECT_EQ(codes, (std::vector<int>{0, 0})) << timeout;
    EXPECT_FALSE(name_in_use(url));
  }
}

// A job's name becomes free even if the job died while its group was forming or while it was
// working.
TEST(ShmJoining, ACrashedJobLeavesItsNameFree) {
  std::string url = fmt::format("shm://crashed-{}", getpid());
  std::vector<int> codes = test::spawn_processes(1, [&](int) {
    std::thread killer([&] {
      while (!name_in_use(url)) pause_ms(2);
      kill(getpid(), SIGKILL);
    });
    create_communicator(url, {.rank = 0, .size = 2});
  });
  EXPECT_EQ(codes, std::vector<int>{137});
  expect_meeting(url, 2);
  codes = test::spawn_processes(2, [&](int rank) {
    auto comm = create_communicator(url, {.rank = rank, .size = 2});
    comm->barrier("work");
    kill(getpid(), SIGKILL);
  });
  EXPECT_EQ(codes, (std::vector<int>{137, 137}));
  expect_meeting(url, 3);
}

// A rank that is waiting for others learns soon that rank 0, which collects the ranks, has died.
TEST(ShmJoining, ARankLearnsThatRankZeroDiedWhileJoining) {
  std::string url = fmt::format("shm://orphan-{}", getpid());
  std::vector<int> codes = test::spawn_processes(2, [&](int rank) {
    if (rank == 1) {
      auto begin = std::chrono::steady_clock::now();
      expect_names(message_of([&] { create_communicator(url, {.rank = 1, .size = 3}); }),
                   {url, "rank 0 left while the ranks joined"});
      EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(30));
      return;
    }
    std::thread killer([&] {
      while (!name_in_use(url)) pause_ms(2);
      pause_ms(200);
      kill(getpid(), SIGKILL);
    });
    create_communicator(url, {.rank = 0, .size = 3});
  });
  EXPECT_EQ(codes, (std::vector<int>{137, 0}));
  EXPECT_FALSE(name_in_use(url));
}

TEST(Joining, WithoutMemfdRanksShareAnotherFile) {
  const std::string url = fmt::format("shm://refused-{}", getpid());
  EXPECT_EQ(test::spawn_processes(2,
                                  [&](int rank) {
                                    ASSERT_TRUE(test::refuse_call(SYS_memfd_create, EPERM));
                                    auto comm = create_communicator(url, {.rank = rank, .size = 2});
                                    comm->barrier("met");
                                  }),
            (std::vector<int>{0, 0}));
}

TEST(Joining, TimeoutsBeyondTheClockMeanNever) {
  for (const char* url : {"threads://never", "shm://never"}) {
    CommOptions options;
    options.size = 2;
    options.timeout_ms = options.join_ms = INT64_MAX;
    std::thread other([=] {
      CommOptions mine = options;
      mine.rank = 1;
      std::unique_ptr<Communicator> comm = create_communicator(url, mine);
      comm->barrier("b");
    });
    std::unique_ptr<Communicator> comm = create_communicator(url, options);
    comm->barrier("b");
    other.join();
  }
}

TEST(Joining, TheEnvironmentMustNameAGroup) {
  setenv("WORLD_SIZE", "2", 1);
  setenv("RANK", "0", 1);
  setenv("DS_COMM_URL", "env", 1);
  expect_names(message_of([] { create_communicator("env", {}); }, DS_ERROR_INVALID_ARGUMENT),
               {"DS_COMM_URL", "'env'"});
  for (const char* name : {"WORLD_SIZE", "RANK", "DS_COMM_URL"}) unsetenv(name);
}

}  // namespace
}  // namespace ds::joining_test
