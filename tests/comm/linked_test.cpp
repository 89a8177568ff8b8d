#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <functional>
#include <string>
#include <thread>

#include "comm/intent.h"
#include "comm/transport/transport.h"
#include "core/base/error.h"
#include "core/base/utf8.h"
#include "support/post_office.h"
#include "support/spawn.h"

// Tests how a group over a plugin's transport reacts to a failing peer. The test itself decides
// which messages arrive; mpi.sh tests a real transport.
namespace ds {
namespace {

class Linked : public testing::Test {
 protected:
  void SetUp() override { test::open_office(&office_); }
  void TearDown() override { test::open_office(nullptr); }

  // Runs body(communicator) on two ranks.
  static void on_both(int64_t timeout_ms, const std::function<void(Communicator&)>& body) {
    test::spawn_threads(2, [&](int rank) {
      auto comm = make_linked(test::post_transport(), "",
                              {.rank = rank, .size = 2, .timeout_ms = timeout_ms});
      body(*comm);
    });
  }

  static std::string error_of(const std::function<void()>& call) {
    try {
      call();
    } catch (const Error& error) {
      EXPECT_EQ(error.status(), DS_ERROR_COMM);
      return error.what();
    }
    return "no error";
  }

  test::Office office_;
};

TEST_F(Linked, AStalledPeerIsNamed) {
  std::atomic<bool> done{false};
  on_both(100, [&](Communicator& comm) {
    if (comm.rank() == 1) {
      while (!done) std::this_thread::yield();
      return;
    }
    EXPECT_EQ(error_of([&] { comm.barrier("h.3"); }),
              "rank 0 in barrier 'h.3': rank 1 has made no progress for 100 ms");
    EXPECT_NE(error_of([&] { comm.barrier("again"); }), "no error");
    done = true;
  });
}

TEST_F(Linked, ASlowPeerThatWorksIsWaitedFor) {
  office_.lively = true;
  std::atomic<bool> waited{false};
  on_both(50, [&](Communicator& comm) {
    if (comm.rank() == 0) {
      std::thread clock([&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(300));
        waited = true;
      });
      comm.barrier("long");
      clock.join();
    } else {
      while (!waited) std::this_thread::yield();
      comm.barrier("long");
    }
  });
}

// A large part takes minutes on a slow connection: no heartbeat arrives, but its bytes do.
TEST_F(Linked, APeerWhosePartComesSlowlyIsWaitedFor) {
  std::atomic<bool> over{false};
  std::thread wire([&] {
    for (; !over; std::this_thread::sleep_for(std::chrono::milliseconds(10))) {
      std::lock_guard lock(office_.mutex);
      ++office_.moved[1];
    }
  });
  std::atomic<bool> waited{false};
  on_both(50, [&](Communicator& comm) {
    if (comm.rank() == 1) {
      std::this_thread::sleep_for(std::chrono::milliseconds(300));
      waited = true;
    }
    comm.barrier("long");
    EXPECT_TRUE(waited);
  });
  over = true;
  wire.join();
}

TEST_F(Linked, ALostRankIsDescribedByItsTransport) {
  {
    std::lock_guard lock(office_.mutex);
    office_.stalls[1] = "of 9 bytes none arrive";
  }
  std::string message;
  on_both(50, [&](Communicator& comm) {
    if (comm.rank() == 0) {
      message = error_of([&] { comm.barrier("alone"); });
    } else {
      std::this_thread::sleep_for(std::chrono::milliseconds(300));
    }
  });
  EXPECT_EQ(
      message,
      "rank 0 in barrier 'alone': rank 1 has made no progress for 50 ms; of 9 bytes none arrive");
}

// The peer's part has already arrived, so the collective returns at once. Heartbeats are at least
// 100 ms apart.
TEST_F(Linked, ACollectiveThatDoesNotWaitSendsAHeartbeat) {
  on_both(60000, [&](Communicator& comm) {
    auto sign = [&] {
      std::lock_guard lock(office_.mutex);
      return office_.signs[1];
    };
    auto letters = [&] {
      std::lock_guard lock(office_.mutex);
      return office_.letters[{0, 1}].size();
    };
    if (comm.rank() == 1) {
      std::this_thread::sleep_for(std::chrono::milliseconds(110));
      while (letters() == 0) std::this_thread::yield();
    }
    uint64_t before = sign();
    comm.barrier("quick");
    if (comm.rank() == 1) {
      EXPECT_NE(sign(), before);
    }
  });
}

TEST_F(Linked, APeerThatLeftIsNamed) {
  std::string message;
  on_both(60000, [&](Communicator& comm) {
    if (comm.rank() == 0) message = error_of([&] { comm.barrier("end"); });
  });
  EXPECT_EQ(message, "rank 0 in barrier 'end': rank 1 has left the group");
}

TEST_F(Linked, AnAbortReachesTheOthersWithItsReason) {
  on_both(60000, [&](Communicator& comm) {
    if (comm.rank() == 1) comm.abort("the disk is full");
    std::string message = error_of([&] { comm.barrier("next"); });
    EXPECT_NE(message.find("the disk is full"), std::string::npos) << message;
    bool told = message.find("ended by rank 1") != std::string::npos;
    EXPECT_EQ(told, comm.rank() == 0) << message;
  });
}

TEST_F(Linked, DifferentCallsAreNamedOnBothRanks) {
  on_both(60000, [&](Communicator& comm) {
    char in[8] = {}, out[16];
    std::string message = error_of([&] {
      if (comm.rank() == 0) {
        comm.all_gather(in, out, 8, "w");
      } else {
        comm.barrier("w");
      }
    });
    for (const char* part : {"all_gather 'w' of 8 bytes", "barrier 'w' of 0 bytes"}) {
      EXPECT_NE(message.find(part), std::string::npos) << message;
    }
  });
}

// Another rank's text may contain any bytes and may lack the terminating zero.
TEST(Intents, TheTextOfAnotherRankIsShownAsOneLine) {
  Intent mine, theirs;
  mine.set(1, "barrier", "", 0, "h.3");
  std::memset(static_cast<void*>(&theirs), 0xff, sizeof theirs);
  const std::string reason = intents_differ(0, mine, 1, theirs);
  EXPECT_TRUE(is_utf8(reason)) << reason;
  EXPECT_NE(reason.find("\\xff"), std::string::npos) << reason;
  EXPECT_NE(reason.find("rank 0 calls barrier 'h.3'"), std::string::npos) << reason;
}

}  // namespace
}  // namespace ds
