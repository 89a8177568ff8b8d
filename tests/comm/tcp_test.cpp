#include <arpa/inet.h>
#include <fmt/core.h>
#include <gtest/gtest.h>
#include <netdb.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "comm/communicator.h"
#include "core/base/log.h"
#include "core/base/plugin.h"
#include "support/errors.h"
#include "support/spawn.h"
#include "support/temp_folder.h"

// Tests how ranks form a group over TCP, and what the other ranks report when a rank fails. The
// system chooses the ports.
namespace ds {
namespace {

using test::expect_names;
using test::message_of;
using test::pause_ms;

// Milliseconds within which the ranks of a test join.
constexpr int64_t kJoin = 700;
constexpr const char* kKey = "the key of these tests";

class TCP : public testing::Test {
 protected:
  void SetUp() override {
    if (!load_transport("tcp")) GTEST_SKIP() << "the transport tcp is not built";
    setenv("DS_JOB_KEY", kKey, 1);
  }
  void TearDown() override {
    unsetenv("DS_JOB_KEY");
    unsetenv("DS_JOB_KEY_FILE");
  }
  std::string url() const { return "tcp://" + folder_ / "meet"; }

  // Runs body(communicator) in processes, one per rank.
  std::vector<int> on_ranks(int ranks, int64_t timeout_ms,
                            const std::function<void(Communicator&)>& body) {
    return test::spawn_processes(ranks, [&](int rank) {
      auto comm =
          create_communicator(url(), {.rank = rank, .size = ranks, .timeout_ms = timeout_ms});
      body(*comm);
    });
  }
  // Returns the error of a single rank that cannot join a group.
  std::string alone(const std::string& address, int rank, int size) {
    return message_of(
        [&] { create_communicator(address, {.rank = rank, .size = size, .join_ms = kJoin}); });
  }
  // Waits until rank 0 of the job that uses this meeting file listens, and returns its address.
  std::string waiting_at() const {
    std::string host;
    int port = 0;
    for (int i = 0; port == 0 && i < 4000; ++i, pause_ms(5))
      std::ifstream(folder_ / "meet") >> host >> port;
    EXPECT_NE(port, 0) << "rank 0 does not wait";
    return fmt::format("{}:{}", host, port);
  }

  test::TempFolder folder_;
};

TEST_F(TCP, AMissingRankIsNamed) {
  EXPECT_EQ(
      alone(url(), 0, 2),
      fmt::format("rank 0 cannot join over tcp: rank 1 of 2 did not connect to {} within {} ms",
                  folder_ / "meet", kJoin));
  EXPECT_EQ(alone(url(), 1, 2),
            fmt::format(
                "rank 1 cannot join over tcp: rank 0 was not at {} within {} ms: no such file yet",
                folder_ / "meet", kJoin));
  std::vector<std::string> messages(4);
  test::spawn_threads(4, [&](int rank) {
    if (rank == 0 || rank == 2) messages[static_cast<size_t>(rank)] = alone(url(), rank, 4);
  });
  for (int r : {0, 2})
    expect_names(messages[static_cast<size_t>(r)], {"ranks 1, 3 of 4 did not connect to"});
}

// Ranks keep trying until the timeout: a host name may resolve only after they have started, and an
// address may become reachable later.
TEST_F(TCP, NamesAndAddressesAreTriedUntilTheTimeOut) {
  const auto begin = std::chrono::steady_clock::now();
  expect_names(alone("tcp://no..such.host:29999", 1, 2),
               {"host 'no..such.host' has no address", fmt::format("for {} ms", kJoin)});
  EXPECT_GE(std::chrono::steady_clock::now() - begin, std::chrono::milliseconds(kJoin));
  expect_names(alone("tcp://localhost:1", 1, 2), {"127.0.0.1:1: Connection refused"});
}

// Sending a heartbeat to a rank that has left fails, but the reason that the rank had sent is still
// read.
TEST_F(TCP, AReasonIsReadAfterFailedHeartbeats) {
  const std::vector<int> codes = on_ranks(2, 20000, [](Communicator& comm) {
    comm.barrier("met");
    if (comm.rank() == 1) return comm.abort("the disk is full");
    for (int i = 0; i < 4; ++i, pause_ms(150)) comm.tick();
    expect_names(message_of([&] { comm.barrier("next"); }), {"rank 1", "the disk is full"});
  });
  EXPECT_EQ(codes, (std::vector<int>{0, 0}));
}

// The waiting rank receives heartbeats for longer than its timeout of a second: for 1.5 s, or with
// DS_LONG for 10 s.
TEST_F(TCP, ARankThatOnlySendsHeartbeatsIsWaitedFor) {
  const int turns = std::getenv("DS_LONG") != nullptr ? 500 : 75;
  const std::vector<int> codes = on_ranks(2, 1000, [&](Communicator& comm) {
    comm.barrier("met");
    for (int i = 0; comm.rank() == 1 && i < turns; ++i, pause_ms(20)) comm.tick();
    comm.barrier("next");
  });
  EXPECT_EQ(codes, (std::vector<int>{0, 0}));
}

// Tests a group with a key and one without. Without a key, both ends check which user owns the
// other end's socket.
TEST_F(TCP, RanksMeetOverIpv6) {
  const int probe = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in6 place{};
  place.sin6_family = AF_INET6;
  place.sin6_addr = in6addr_loopback;
  socklen_t size = sizeof place;
  const bool has = probe >= 0 && bind(probe, reinterpret_cast<sockaddr*>(&place), size) == 0 &&
                   getsockname(probe, reinterpret_cast<sockaddr*>(&place), &size) == 0;
  if (probe >= 0) close(probe);
  if (!has) GTEST_SKIP() << "this machine has no IPv6";
  const std::string at = fmt::format("tcp://[::1]:{}", ntohs(place.sin6_port));
  for (bool keyed : {true, false}) {
    if (!keyed) unsetenv("DS_JOB_KEY");
    const std::vector<int> codes = test::spawn_processes(3, [&](int rank) {
      auto comm = create_communicator(at, {.rank = rank, .size = 3, .timeout_ms = 10000});
      comm->barrier("met");
    });
    EXPECT_EQ(codes, (std::vector<int>{0, 0, 0})) << keyed;
  }
  expect_names(alone(at, 1, 2), {"rank 0 was not at [::1]:"});
}

TEST_F(TCP, ARankZeroOnTheWrongHostIsRefused) {
  const std::string reason =
      "rank 0 runs on this host, but '192.0.2.1' is not one of its addresses";
  expect_names(alone("tcp://192.0.2.1:29557", 0, 2),
               {"did not connect to 192.0.2.1:29557", reason});
  // No rank can reach rank 0 at this address, because torchrun's own store listens there.
  setenv("TORCHELASTIC_USE_AGENT_STORE", "True", 1);
  const auto begin = std::chrono::steady_clock::now();
  expect_names(alone("tcp://192.0.2.1:29557", 0, 2), {reason});
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::milliseconds(kJoin));
  unsetenv("TORCHELASTIC_USE_AGENT_STORE");
}

TEST_F(TCP, SizesThatDifferAreNamed) {
  std::vector<std::string> messages(2);
  test::spawn_threads(2, [&](int rank) {
    messages[static_cast<size_t>(rank)] = alone(url(), rank, rank == 0 ? 2 : 3);
  });
  for (const std::string& message : messages)
    expect_names(message, {"rank 1 was started as one of 3 ranks, rank 0 as one of 2"});
}

TEST_F(TCP, ATakenPortIsNamed) {
  int door = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  ASSERT_EQ(bind(door, reinterpret_cast<sockaddr*>(&address), size), 0);
  ASSERT_EQ(listen(door, 1), 0);
  ASSERT_EQ(getsockname(door, reinterpret_cast<sockaddr*>(&address), &size), 0);
  int port = ntohs(address.sin_port);
  EXPECT_EQ(
      alone(fmt::format("tcp://127.0.0.1:{}", port), 0, 2),
      fmt::format(
          "rank 0 cannot join over tcp: port {} of this host is taken: another job or program "
          "listens there",
          port));
  close(door);
}

// Ranks of another job and a second rank with the same number are refused with the reason, and the
// first job continues.
TEST_F(TCP, ForeignRanksAreRefused) {
  std::thread group([&] {
    test::spawn_threads(2, [&](int rank) {
      std::string at = rank == 0 ? url() : "tcp://" + waiting_at();
      if (rank == 1) {
        std::string other = alone(at + "/night-7", 1, 2);
        expect_names(other, {"job '' meet, but this rank belongs to job 'night-7'"});
      }
      create_communicator(at, {.rank = rank, .size = 2})->barrier("met");
    });
  });
  group.join();
  std::atomic<int> refused{0}, met{0};
  test::spawn_threads(4, [&](int thread) {
    // Two threads join as rank 2, and rank 1 joins only after one of them was refused.
    int rank = std::min(thread, 2);
    std::string at = rank == 0 ? url() : "tcp://" + waiting_at();
    for (; rank == 1 && refused == 0; pause_ms(5)) continue;
    try {
      create_communicator(at, {.rank = rank, .size = 3})->barrier("met");
      ++met;
    } catch (const Error& error) {
      expect_names(error.what(), {"rank 2 of 3 has joined already"});
      ++refused;
    }
  });
  EXPECT_EQ(refused, 1);
  EXPECT_EQ(met, 3);
}

// The first message of proof.h, as a foreign peer would write it. The layout is repeated here on
// purpose.
struct WrittenHello {
  char magic[8] = "dstcp01";
  uint32_t purpose = 1;
  int32_t from = 1, to = 0, size = 2;
  char job[88] = {};
  char draw[32] = {};
};

// Returns a connection to the rank 0 that listens at this address.
int connected_to(const std::string& at) {
  size_t colon = at.rfind(':');
  addrinfo hints{}, *list = nullptr;
  hints.ai_family = AF_INET;
  hints.ai_socktype = SOCK_STREAM;
  EXPECT_EQ(getaddrinfo(at.substr(0, colon).c_str(), at.substr(colon + 1).c_str(), &hints, &list),
            0);
  int guest = socket(AF_INET, SOCK_STREAM, 0);
  EXPECT_EQ(connect(guest, list->ai_addr, list->ai_addrlen), 0);
  freeaddrinfo(list);
  return guest;
}

std::string all_from(int guest) {
  std::string answer(300, '\0');
  answer.resize(
      static_cast<size_t>(std::max<ssize_t>(0, recv(guest, answer.data(), 300, MSG_WAITALL))));
  close(guest);
  return answer;
}

// A peer without the key receives at most a challenge and never joins as the rank that it claims to
// be.
TEST_F(TCP, APeerWithoutTheKeyLearnsNothingAndCannotJoin) {
  std::atomic<bool> refused{false};
  std::vector<std::string> lines;
  set_log_sink([&](LogLevel, std::string_view line) { lines.emplace_back(line); });
  test::spawn_threads(3, [&](int thread) {
    if (thread < 2) {
      while (thread == 1 && !refused) pause_ms(5);
      create_communicator(url(), {.rank = thread, .size = 2})->barrier("met");
      return;
    }
    std::string at = waiting_at();
    if (HasFailure()) refused = true;
    int half_open = connected_to(at);
    for (int size : {2, 3}) {
      int guest = connected_to(at);
      WrittenHello hello;
      hello.size = size;
      char proof[32] = "I should like to come in";
      EXPECT_EQ(write(guest, &hello, sizeof hello), static_cast<ssize_t>(sizeof hello));
      EXPECT_EQ(write(guest, proof, sizeof proof), static_cast<ssize_t>(sizeof proof));
      EXPECT_EQ(all_from(guest).size(), 32u);
    }
    int guest = connected_to(at);
    EXPECT_EQ(write(guest, std::string(160, 'x').data(), 160), 160);
    EXPECT_EQ(all_from(guest), "");
    refused = true;
    close(half_open);
  });
  flush_log();
  set_log_sink({});
  ASSERT_EQ(lines.size(), 1u);
  expect_names(lines[0], {"rank 0 over tcp: ", " connections did not prove the key",
                          "the first, from 127.0.0.1, "});
}

TEST_F(TCP, AnotherKeyIsNamed) {
  auto codes = test::spawn_processes(3, [&](int rank) {
    if (rank == 1) setenv("DS_JOB_KEY", "a key of another job", 1);
    if (rank == 2) unsetenv("DS_JOB_KEY");
    std::string message = alone(url(), rank, 3);
    expect_names(message, {"DS_JOB_KEY"});
    if (rank == 0)
      expect_names(message, {"ranks 1, 2 of 3", "connections did not prove the key",
                             "the first, from ", "has another key"});
    if (rank == 1) expect_names(message, {"does not accept this rank's proof"});
    if (rank == 2) expect_names(message, {"rank 0 has a DS_JOB_KEY, but this rank does not"});
  });
  EXPECT_EQ(codes, (std::vector<int>{0, 0, 0}));
}

TEST_F(TCP, WithoutAKeyRanksMeetOnThisHostOnly) {
  auto codes = test::spawn_processes(2, [&](int rank) {
    unsetenv("DS_JOB_KEY");
    expect_names(alone("tcp://192.0.2.222:4711", rank, 2),
                 {"'192.0.2.222' is not this host", "DS_JOB_KEY", "DS_JOB_KEY=none"});
    create_communicator(url(), {.rank = rank, .size = 2})->barrier("by the key in the file");
    setenv("DS_JOB_KEY", "none", 1);
    create_communicator(url(), {.rank = rank, .size = 2})->barrier("without any");
  });
  EXPECT_EQ(codes, (std::vector<int>{0, 0}));
}

TEST_F(TCP, AKeyThatIsNotSecretIsRefused) {
  setenv("DS_JOB_KEY", "too short", 1);
  expect_names(alone(url(), 0, 2), {"DS_JOB_KEY must have at least 16 characters", "got 9"});
  unsetenv("DS_JOB_KEY");
  std::string file = folder_ / "key";
  setenv("DS_JOB_KEY_FILE", file.c_str(), 1);
  expect_names(alone(url(), 0, 2), {"DS_JOB_KEY_FILE '" + file + "'", "no such file"});
  std::ofstream(file) << kKey << "\n";
  ASSERT_EQ(chmod(file.c_str(), 0640), 0);
  expect_names(alone(url(), 0, 2),
               {"DS_JOB_KEY_FILE '" + file + "'", "its mode is 0640, must be 0600"});
  ASSERT_EQ(chmod(file.c_str(), 0600), 0);
  auto codes = test::spawn_processes(2, [&](int rank) {
    if (rank == 1) setenv("DS_JOB_KEY", kKey, 1);
    create_communicator(url(), {.rank = rank, .size = 2})->barrier("met");
  });
  EXPECT_EQ(codes, (std::vector<int>{0, 0}));
  std::string link = folder_ / "link", fifo = folder_ / "fifo";
  ASSERT_EQ(symlink(file.c_str(), link.c_str()), 0);
  ASSERT_EQ(mkfifo(fifo.c_str(), 0600), 0);
  setenv("DS_JOB_KEY_FILE", link.c_str(), 1);
  expect_names(alone(url(), 0, 2), {"it is a link"});
  setenv("DS_JOB_KEY_FILE", fifo.c_str(), 1);
  expect_names(alone(url(), 0, 2), {"it is not a regular file"});
}

// Only this user can read the meeting file, and a file that another user puts in its place is
// rejected.
TEST_F(TCP, AMeetingFileIsPrivate) {
  std::string meet = folder_ / "meet", victim = folder_ / "victim";
  std::thread host([&] { alone(url(), 0, 2); });
  waiting_at();
  struct stat status {};
  ASSERT_EQ(lstat(meet.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 07777, 0600u);
  host.join();
  std::string about = "was not at " + meet + " within 700 ms: ";
  ASSERT_EQ(mkfifo(meet.c_str(), 0600), 0);
  expect_names(alone(url(), 1, 2), {about + "it is not a regular file"});
  unlink(meet.c_str());
  std::ofstream(victim) << "127.0.0.1 4711 -\n";
  ASSERT_EQ(symlink(victim.c_str(), meet.c_str()), 0);
  expect_names(alone(url(), 1, 2), {about + "it is a link"});
  // Rank 0 replaces the link, not its target.
  alone(url(), 0, 2);
  EXPECT_EQ(std::filesystem::file_size(victim), 17u);
  std::ofstream(meet) << "127.0.0.1 4711 -\n";
  ASSERT_EQ(chmod(meet.c_str(), 0666), 0);
  expect_names(alone(url(), 1, 2), {about + "others may open it: its mode is 0666"});
  if (getuid() != 0) return;
  ASSERT_EQ(chmod(meet.c_str(), 0600) | chown(meet.c_str(), 65534, 65534), 0);
  expect_names(alone(url(), 1, 2), {about + "it belongs to user 65534, not to this user 0"});
}

TEST_F(TCP, ARankThatDiesWhileJoiningMayBeReplaced) {
  auto codes = test::spawn_processes(4, [&](int process) {
    std::string left = folder_ / "left";
    // Starts a rank 1 that is killed while it waits for rank 2.
    if (process == 3) {
      waiting_at();
      pid_t child = fork();
      if (child == 0) create_communicator(url(), {.rank = 1, .size = 3});
      pause_ms(300);
      kill(child, SIGKILL);
      waitpid(child, nullptr, 0);
      std::ofstream(left) << "yes";
      return;
    }
    int rank = process;
    while (rank > 0 && !std::filesystem::exists(left)) pause_ms(5);
    create_communicator(url(), {.rank = rank, .size = 3})->barrier("met");
  });
  EXPECT_EQ(codes, (std::vector<int>{0, 0, 0, 0}));
}

TEST_F(TCP, AddressesAreChecked) {
  expect_names(alone("tcp://worker-0", 0, 2), {"HOST:PORT", "'worker-0'"});
  expect_names(alone("tcp://worker-0:70000", 0, 2), {"1 to 65535", "'70000'"});
  expect_names(alone("tcp://no.such.host.:4000", 1, 2), {"host 'no.such.host.' has no address"});
  unsetenv("MASTER_ADDR");
  expect_names(alone("tcp", 0, 2), {"MASTER_ADDR", "not set"});
}

TEST_F(TCP, AKilledRankIsNamed) {
  auto codes = on_ranks(3, 60000, [](Communicator& comm) {
    comm.barrier("first");
    if (comm.rank() == 2) ::raise(SIGKILL);
    std::vector<std::byte> block(1000), all(3000);
    expect_names(
        message_of([&] { comm.all_gather(block.data(), all.data(), block.size(), "h.1"); }),
        {fmt::format("rank {} in all_gather 'h.1'", comm.rank()), "rank 2 has left the group"});
  });
  EXPECT_EQ(codes, (std::vector<int>{0, 0, 128 + SIGKILL}));
}

TEST_F(TCP, AStoppedRankIsNamed) {
  auto codes = on_ranks(2, 500, [](Communicator& comm) {
    pid_t pid = getpid();
    comm.broadcast(&pid, sizeof pid, 1, "pid");
    if (comm.rank() == 1) ::raise(SIGSTOP);
    expect_names(message_of([&] { comm.barrier("h.2"); }),
                 {"rank 0 in barrier 'h.2': rank 1 has made no progress for 500 ms"});
    kill(pid, SIGKILL);
  });
  EXPECT_EQ(codes, (std::vector<int>{0, 128 + SIGKILL}));
}

TEST_F(TCP, ASlowRankThatWorksIsWaitedFor) {
  auto codes = on_ranks(2, 400, [](Communicator& comm) {
    for (int i = 0; comm.rank() == 1 && i < 60; ++i) {
      pause_ms(20);
      comm.tick();
    }
    comm.barrier("long");
  });
  EXPECT_EQ(codes, (std::vector<int>{0, 0}));
}

TEST_F(TCP, AReasonArrivesEvenFromARankThatExitsAtOnce) {
  for (int i = 0; i < 10; ++i) {
    auto codes = on_ranks(3, 60000, [](Communicator& comm) {
      if (comm.rank() == 1) {
        comm.barrier("first");
        return comm.abort("the disk is full");
      }
      // The reason may arrive before another rank has left the first barrier.
      std::string message = message_of([&] {
        comm.barrier("first");
        comm.barrier("next");
      });
      expect_names(message, {"the disk is full"});
    });
    EXPECT_EQ(codes, (std::vector<int>{0, 0, 0}));
  }
}

// Once the call has failed, the buffer of a part that was being sent may be freed.
TEST_F(TCP, AnAbortCancelsAPartInFlight) {
  for (int ms : {0, 5, 20}) {
    auto codes = on_ranks(2, 60000, [ms](Communicator& comm) {
      std::vector<std::byte> data(size_t{96} << 20);
      std::thread other([&] {
        pause_ms(ms);
        if (comm.rank() == 1) comm.abort("enough");
      });
      auto endless = [&] {
        for (;;) comm.broadcast(data.data(), data.size(), 0, "w");
      };
      expect_names(message_of(endless), {"enough"});
      std::vector<std::byte>().swap(data);
      other.join();
      pause_ms(30);
    });
    EXPECT_EQ(codes, (std::vector<int>{0, 0}));
  }
}

// A forked child cannot use its parent's link, which the parent keeps.
TEST_F(TCP, AForkedChildCannotUseItsLink) {
  auto codes = test::spawn_processes(2, [&](int rank) {
    auto comm = create_communicator(url(), {.rank = rank, .size = 2});
    auto group = comm->split(0, 0, "all");
    pid_t child = fork();
    if (child == 0) {
      alarm(20);
      message_of([&] { comm->barrier("child"); }, DS_ERROR_STATE);
      char byte = 0;
      int other = 1 - rank;
      message_of(
          [&] {
            rank == 0 ? group->send(&byte, 1, other, "c") : group->receive(&byte, 1, other, "c");
          },
          DS_ERROR_STATE);
      group->abort("not mine");
      group.reset();
      comm.reset();
      _exit(HasFailure() ? 1 : 7);
    }
    int status = 0;
    for (int i = 0; waitpid(child, &status, WNOHANG) == 0; ++i) {
      // Ends a child that hangs.
      if (i == 2000) kill(child, SIGKILL);
      pause_ms(5);
    }
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 7) << status;
    group->barrier("still whole");
    comm->barrier("still whole");
  });
  EXPECT_EQ(codes, (std::vector<int>{0, 0}));
}

TEST_F(TCP, AnyTimeoutIsAccepted) {
  auto codes = test::spawn_processes(2, [&](int rank) {
    create_communicator(url(), {.rank = rank, .size = 2, .join_ms = INT64_MAX})->barrier("met");
  });
  EXPECT_EQ(codes, (std::vector<int>{0, 0}));
}

size_t entries_of(const char* folder) {
  auto all = std::filesystem::directory_iterator(folder);
  return static_cast<size_t>(std::distance(begin(all), end(all)));
}

TEST_F(TCP, NothingIsLeftOfAGroup) {
  auto codes = test::spawn_processes(2, [&](int rank) {
    create_communicator(url(), {.rank = rank, .size = 2})->barrier("first");
    size_t files = entries_of("/proc/self/fd"), threads = entries_of("/proc/self/task");
    for (int i = 0; i < 3; ++i)
      create_communicator(url(), {.rank = rank, .size = 2})->barrier("again");
    EXPECT_EQ(entries_of("/proc/self/fd"), files);
    EXPECT_EQ(entries_of("/proc/self/task"), threads);
    EXPECT_EQ(threads, 1u);
  });
  EXPECT_EQ(codes, (std::vector<int>{0, 0}));
  EXPECT_TRUE(std::filesystem::is_empty(folder_.path()));
}

// Measures one process in groups of many ranks. Under ASan and TSan, the bytes include those of the
// sanitizer's operator new.
TEST_F(TCP, ARankKeepsOneDescriptorAnd512BytesForEachOther) {
  struct Kept {
    int64_t bytes = 0, files = 0, threads = 0;
  };
  auto kept = [&](int ranks) {
    const std::string out = folder_ / "out", err = folder_ / "err";
    const pid_t child = test::start_process(
        {DS_BINARY_DIR "/bin/kept_ranks", url(), std::to_string(ranks)}, {}, out, err);
    int status = 0;
    waitpid(child, &status, 0);
    Kept found;
    std::ifstream(out) >> found.bytes >> found.files >> found.threads;
    EXPECT_EQ(status, 0) << std::ifstream(err).rdbuf();
    EXPECT_EQ(found.threads, 1);
    return found;
  };
  constexpr int kFew = 8, kMany = 72;
  const Kept few = kept(kFew), many = kept(kMany);
  EXPECT_EQ(many.files - few.files, kMany - kFew);
  const int64_t bytes = (many.bytes - few.bytes) / (kMany - kFew);
  EXPECT_LE(bytes, 512);
  EXPECT_GE(bytes, 100);
  RecordProperty("bytes", std::to_string(bytes));
}

TEST(Plugins, AMissingPluginIsNamedWithItsExpectedFile) {
  for (const char* url : {"ccl", "hccl", "nccl://job"}) {
    std::string message =
        message_of([&] { create_communicator(url, {.size = 2}); }, DS_ERROR_UNSUPPORTED);
    std::string name(url,
                     std::string(url).find(':') == std::string::npos ? std::string(url).size() : 4);
    expect_names(message, {fmt::format("'{}'", name), fmt::format("libds_{}.so", name),
                           "ds_plugin_transport()", "ds_plugin.h", "DS_PLUGIN_PATH"});
    EXPECT_EQ(message.find('\n'), std::string::npos);
  }
  message_of([] { create_communicator("../ccl", {.size = 2}); }, DS_ERROR_INVALID_ARGUMENT);
  for (const char* part : {"tcp", "mpi", "ccl, hccl"}) {
    std::vector<std::pair<std::string, std::string>> forms = communicator_forms();
    auto of_part = [&](const auto& form) { return form.first.find(part) != std::string::npos; };
    EXPECT_TRUE(std::any_of(forms.begin(), forms.end(), of_part)) << part;
  }
}

}  // namespace
}  // namespace ds
