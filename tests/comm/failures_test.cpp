#include <fmt/core.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "comm/communicator.h"
#include "comm/exchange.h"
#include "comm/intent.h"
#include "comm/shared_exchange.h"
#include "comm/transport/transport.h"
#include "core/base/error.h"
#include "support/errors.h"
#include "support/spawn.h"

// Tests what every other rank sees when one rank fails.
namespace ds {
namespace {

using test::expect_names;
using test::message_of;
using test::pause_ms;

class Failures : public testing::TestWithParam<const char*> {
 protected:
  std::string url() const { return fmt::format("{}://failures-{}", GetParam(), getpid()); }
  // Runs body(rank, url) on every rank, in threads or in processes, which must succeed.
  void on_all(int ranks, const std::function<void(int, const std::string&)>& body) {
    std::string name = url();
    auto one = [&](int rank) { body(rank, name); };
    if (std::string(GetParam()) == "threads") return test::spawn_threads(ranks, one);
    EXPECT_EQ(test::spawn_processes(ranks, one), std::vector<int>(static_cast<size_t>(ranks), 0));
  }
};

// A rank that ends a group may be stopped by the system before it has written the reason.
TEST(SharedFailures, AReasonThatComesLateIsNamed) {
  const std::string name = fmt::format("late-{}", getpid());
  test::spawn_threads(2, [&](int rank) {
    const CommOptions options{.rank = rank, .size = 2};
    std::unique_ptr<Sharing> sharing = share_threads(name, options);
    SharedSegment& segment = sharing->segment();
    SharedExchange exchange(std::move(sharing), Membership::whole(rank, 2), options);
    if (rank == 1) {
      segment.aborted.store(2);
      pause_ms(50);
      put_text(segment.reason, sizeof segment.reason, "the late reason");
      segment.reason_ready.store(1, std::memory_order_release);
      return;
    }
    while (segment.aborted.load() == 0) std::this_thread::yield();
    Intent intent;
    intent.set(1, "barrier", "", 0, "w");
    expect_names(message_of([&] { exchange.begin(intent); }),
                 {"was ended by rank 1", "the late reason"});
  });
}

TEST_P(Failures, DivergenceNamesBothCalls) {
  on_all(2, [](int rank, const std::string& url) {
    auto comm = create_communicator(url, {.rank = rank, .size = 2});
    std::vector<float> in(16), out(32);
    std::string message = message_of([&] {
      if (rank == 0) comm->all_gather(in.data(), out.data(), 64, "h.3");
      if (rank == 1) comm->all_reduce(in.data(), out.data(), 8, DS_DTYPE_F32, "h.4");
    });
    expect_names(message, {"all_gather 'h.3' of 64 bytes", "all_reduce f32 'h.4' of 32 bytes",
                           "rank 0", "rank 1"});
    message_of([&] { comm->barrier("later"); });
    pause_ms(50);
  });
}

TEST_P(Failures, BytesTypesAndLabelsMustAgree) {
  for (int what = 0; what < 3; ++what) {
    on_all(2, [what](int rank, const std::string& url) {
      auto comm = create_communicator(url, {.rank = rank, .size = 2});
      std::vector<float> in(16), out(32);
      bool other = rank == 1;
      std::string message = message_of([&] {
        if (what == 0) comm->all_gather(in.data(), out.data(), other ? 60 : 64, "x");
        if (what == 1) comm->all_gather(in.data(), out.data(), 64, other ? "y" : "x");
        if (what == 2)
          comm->all_reduce(in.data(), out.data(), other ? 8 : 4,
                           other ? DS_DTYPE_BF16 : DS_DTYPE_F32, "x");
      });
      expect_names(message, {"ranks differ"});
    });
  }
}

TEST_P(Failures, AnAbortWakesWaitingRanks) {
  on_all(2, [](int rank, const std::string& url) {
    auto comm = create_communicator(url, {.rank = rank, .size = 2});
    std::thread other;
    if (rank == 1) {
      other = std::thread([&] {
        pause_ms(30);
        comm->abort("the disk is full");
      });
      other.join();
    }
    std::string message = message_of([&] { comm->barrier("end"); });
    expect_names(message, {"the disk is full"});
    if (rank == 0) expect_names(message, {"rank 0 in", "ended by rank 1"});
  });
}

TEST_P(Failures, ARankThatLeavesIsNamed) {
  on_all(3, [](int rank, const std::string& url) {
    auto comm = create_communicator(url, {.rank = rank, .size = 3});
    if (rank == 2) return;
    expect_names(message_of([&] { comm->barrier("end"); }),
                 {fmt::format("rank {} in barrier 'end'", rank), "rank 2 has left"});
    pause_ms(100);
  });
}

TEST_P(Failures, LeavingAfterTheLastCollectiveIsNotAFailure) {
  for (int i = 0; i < 50; ++i) {
    on_all(2, [](int rank, const std::string& url) {
      auto comm = create_communicator(url, {.rank = rank, .size = 2});
      comm->barrier("last");
    });
  }
}

TEST_P(Failures, AStalledRankIsAnErrorAndASlowOneIsNot) {
  on_all(2, [](int rank, const std::string& url) {
    auto comm = create_communicator(url, {.rank = rank, .size = 2, .timeout_ms = 400});
    for (int i = 0; rank == 1 && i < 50; ++i) {
      pause_ms(20);
      comm->tick();
    }
    comm->barrier("slow");
    if (rank == 1) {
      pause_ms(1500);
      return;
    }
    expect_names(message_of([&] { comm->barrier("still"); }),
                 {"rank 0 in barrier 'still'", "rank 1 has made no progress"});
  });
}

TEST_P(Failures, AMissingRankIsAJoinError) {
  std::string name = url();
  message_of([&] { create_communicator(name, {.rank = 0, .size = 2, .join_ms = 50}); });
}

// A rank whose call fails frees memory that others may be reading: their calls fail too and never
// use freed memory.
TEST_P(Failures, APayloadMayBeFreedAfterAFailure) {
  for (int turn = 0; turn < 20; ++turn) {
    on_all(3, [turn](int rank, const std::string& url) {
      auto comm = create_communicator(url, {.rank = rank, .size = 3, .cores = 3});
      EXPECT_TRUE(comm->exchange().reads_directly());
      size_t bytes = size_t{3} << 20;
      auto in = std::make_unique<char[]>(bytes), out = std::make_unique<char[]>(3 * bytes);
      std::thread other;
      if (rank == 1) {
        other = std::thread([&] {
          std::this_thread::sleep_for(std::chrono::microseconds(turn * 50));
          comm->abort("enough");
        });
      }
      std::string message = message_of([&] {
        for (;;) comm->all_gather(in.get(), out.get(), bytes, "large");
      });
      in.reset();
      out.reset();
      if (other.joinable()) other.join();
      expect_names(message, {"enough"});
    });
  }
}

INSTANTIATE_TEST_SUITE_P(All, Failures, testing::Values("threads", "shm"),
                         [](const auto& info) { return std::string(info.param); });

// A forked child keeps every descriptor of its parent open; the others must still notice the
// parent's death.
TEST(ShmFailures, AForkedChildNeitherHidesADeathNorJoinsIn) {
  std::string url = fmt::format("shm://forked-{}", getpid());
  std::vector<int> codes = test::spawn_processes(2, [&](int rank) {
    auto comm = create_communicator(url, {.rank = rank, .size = 2});
    if (rank == 1) {
      int refused[2];
      ASSERT_EQ(pipe(refused), 0);
      if (fork() == 0) {
        char answer = 0;
        try {
          comm->barrier("child");
        } catch (const Error& error) {
          answer = error.status() == DS_ERROR_STATE;
        }
        (void)!write(refused[1], &answer, 1);
        sleep(5);
        _exit(0);
      }
      char answer = 0;
      ASSERT_EQ(read(refused[0], &answer, 1), 1);
      ASSERT_EQ(answer, 1);
      kill(getpid(), SIGKILL);
    }
    expect_names(message_of([&] { comm->barrier("after"); }),
                 {"rank 0 in barrier 'after'", "rank 1 is dead"});
  });
  EXPECT_EQ(codes, (std::vector<int>{0, 137}));
}

// Proves {collective.failure}.
TEST(ShmFailures, AKilledRankIsNamedAndNothingIsLeft) {
  std::string url = fmt::format("shm://killed-{}", getpid());
  auto begin = std::chrono::steady_clock::now();
  std::vector<int> codes = test::spawn_processes(3, [&](int rank) {
    auto comm = create_communicator(url, {.rank = rank, .size = 3});
    std::vector<float> data(1000);
    comm->all_reduce(data.data(), data.data(), 1000, DS_DTYPE_F32, "good");
    if (rank == 1) kill(getpid(), SIGKILL);
    expect_names(message_of([&] {
                   comm->all_reduce(data.data(), data.data(), 1000, DS_DTYPE_F32, "grad h.3");
                 }),
                 {fmt::format("rank {} in all_reduce f32 'grad h.3'", rank), "rank 1 is dead"});
  });
  EXPECT_EQ(codes, (std::vector<int>{0, 137, 0}));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(10));
  std::ifstream sockets("/proc/net/unix");
  std::string all{std::istreambuf_iterator<char>(sockets), {}};
  EXPECT_EQ(all.find(url.substr(6)), std::string::npos);
}

// The rank is killed while others read its memory.
TEST(ShmFailures, ARankKilledInALargeCollectiveIsNamed) {
  std::string url = fmt::format("shm://killed-large-{}", getpid());
  for (int turn = 0; turn < 6; ++turn) {
    std::vector<int> codes = test::spawn_processes(2, [&](int rank) {
      auto comm = create_communicator(url, {.rank = rank, .size = 2});
      std::vector<float> data(size_t{4} << 20);
      std::thread killer;
      if (rank == 1) {
        killer = std::thread([turn] {
          std::this_thread::sleep_for(std::chrono::microseconds(20000 + turn * 700));
          kill(getpid(), SIGKILL);
        });
      }
      std::string message = message_of([&] {
        for (;;) comm->all_reduce(data.data(), data.data(), data.size(), DS_DTYPE_F32, "grad h.3");
      });
      if (killer.joinable()) killer.join();
      expect_names(message, {"rank 0 in all_reduce f32 'grad h.3'", "rank 1 is dead"});
    });
    EXPECT_EQ(codes, (std::vector<int>{0, 137}));
  }
}

// A third rank aborts while rank 0 reads what rank 1 sends; rank 1 then overwrites the data.
TEST(ShmFailures, AnAbortedSendDeliversNoWrongData) {
  std::string url = fmt::format("shm://aborted-{}", getpid());
  for (int turn = 0; turn < 4; ++turn) {
    std::vector<int> codes = test::spawn_processes(3, [&](int rank) {
      auto comm = create_communicator(url, {.rank = rank, .size = 3});
      std::vector<uint8_t> data(rank == 2 ? 0 : size_t{192} << 20, uint8_t{1});
      comm->barrier("ready");
      if (rank == 2) {
        std::this_thread::sleep_for(std::chrono::milliseconds(10 + turn * 10));
        comm->abort("enough");
        return;
      }
      // Remains true if the abort comes too late.
      bool whole = true;
      try {
        if (rank == 1) comm->send(data.data(), data.size(), 0, "x");
        if (rank == 0) comm->receive(data.data(), data.size(), 1, "x");
      } catch (const Error& error) {
        expect_names(error.what(), {"enough"});
        whole = false;
      }
      if (rank == 1 && !whole) std::fill(data.begin(), data.end(), uint8_t{2});
      if (rank == 0 && whole) {
        EXPECT_EQ(std::count(data.begin(), data.end(), uint8_t{2}), 0);
      }
    });
    EXPECT_EQ(codes, (std::vector<int>{0, 0, 0}));
  }
}

// Aborting and destroying a group in a forked child affects neither the parent's memory nor the
// group.
TEST(ShmFailures, AForkedChildMayEndASplitGroup) {
  std::string url = fmt::format("shm://split-fork-{}", getpid());
  std::vector<int> codes = test::spawn_processes(2, [&](int rank) {
    auto comm = create_communicator(url, {.rank = rank, .size = 2});
    auto group = comm->split(0, 0, "all");
    comm.reset();
    pid_t child = fork();
    if (child == 0) {
      group->abort("not mine");
      group.reset();
      _exit(7);
    }
    int status = 0;
    waitpid(child, &status, 0);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 7);
    group->barrier("still whole");
  });
  EXPECT_EQ(codes, (std::vector<int>{0, 0}));
}

TEST(ShmFailures, RanksThatDisagreeOnTheWorldSizeAreRefused) {
  std::string url = fmt::format("shm://sizes-{}", getpid());
  std::vector<int> codes = test::spawn_processes(2, [&](int rank) {
    expect_names(message_of([&] {
                   create_communicator(url, {.rank = rank, .size = 2 + rank, .join_ms = 300});
                 }),
                 {"rank 0 was started with size 2, but rank 1 with size 3"});
  });
  EXPECT_EQ(codes, (std::vector<int>{0, 0}));
}

}  // namespace
}  // namespace ds
