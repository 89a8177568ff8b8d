#include "core/base/signals.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <thread>

namespace ds {
namespace {

bool is_pending(int number) {
  sigset_t set;
  sigpending(&set);
  return sigismember(&set, number) == 1;
}

bool is_blocked(int number) {
  sigset_t set;
  pthread_sigmask(SIG_BLOCK, nullptr, &set);
  return sigismember(&set, number) == 1;
}

// With the default disposition, a delivered signal would end this test program.
TEST(SignalsBlocked, WritingToAClosedPipeIsAnError) {
  signal(SIGPIPE, SIG_DFL);
  std::array<int, 2> ends{};
  ASSERT_EQ(pipe(ends.data()), 0);
  close(ends[0]);
  {
    SignalsBlocked blocked(SignalsBlocked::Which::of_writes);
    EXPECT_FALSE(is_blocked(SIGTERM));
    EXPECT_EQ(write(ends[1], "x", 1), -1);
    EXPECT_EQ(errno, EPIPE);
    EXPECT_TRUE(is_pending(SIGPIPE));
  }
  EXPECT_FALSE(is_pending(SIGPIPE));
  EXPECT_FALSE(is_blocked(SIGPIPE));
  close(ends[1]);
}

TEST(SignalsBlocked, WritingBeyondTheFileSizeLimitIsAnError) {
  signal(SIGXFSZ, SIG_DFL);
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  rlimit none = before;
  none.rlim_cur = 0;
  std::FILE* file = std::tmpfile();
  ASSERT_NE(file, nullptr);
  setrlimit(RLIMIT_FSIZE, &none);
  {
    SignalsBlocked blocked(SignalsBlocked::Which::of_writes);
    EXPECT_EQ(write(fileno(file), "x", 1), -1);
  }
  EXPECT_EQ(errno, EFBIG);
  setrlimit(RLIMIT_FSIZE, &before);
  EXPECT_FALSE(is_pending(SIGXFSZ));
  std::fclose(file);
}

TEST(SignalsBlocked, PendingAndBlockedSignalsStaySo) {
  std::thread([] {
    sigset_t pipe_only;
    sigemptyset(&pipe_only);
    sigaddset(&pipe_only, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &pipe_only, nullptr);
    pthread_kill(pthread_self(), SIGPIPE);
    { SignalsBlocked blocked(SignalsBlocked::Which::of_writes); }
    EXPECT_TRUE(is_pending(SIGPIPE));
    EXPECT_TRUE(is_blocked(SIGPIPE));
    int taken = 0;
    sigwait(&pipe_only, &taken);
  }).join();
}

TEST(SignalsBlocked, ThreadsStartedWhileBlockedReceiveNoSignal) {
  std::thread thread;
  {
    SignalsBlocked blocked(SignalsBlocked::Which::all);
    thread = std::thread([] {
      EXPECT_TRUE(is_blocked(SIGTERM));
      EXPECT_TRUE(is_blocked(SIGPIPE));
    });
  }
  EXPECT_FALSE(is_blocked(SIGTERM));
  thread.join();
}

}  // namespace
}  // namespace ds
