#include <dlfcn.h>
#include <gtest/gtest.h>
#include <pthread.h>

#include <atomic>
#include <cerrno>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "core/base/plugin.h"
#include "support/errors.h"
#include "support/spawn.h"
#include "support/temp_folder.h"

// A rank that the system gives no more threads.
namespace {

std::atomic<int> granted{-1};  // negative: any number

}  // namespace

// In place of the C library's, for this program and the shared objects that it loads.
extern "C" __attribute__((visibility("default"))) int pthread_create(pthread_t* thread,
                                                                     const pthread_attr_t* attributes,
                                                                     void* (*body)(void*),
                                                                     void* argument) noexcept {
  using Create = int (*)(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*);
  static const auto create = reinterpret_cast<Create>(dlsym(RTLD_NEXT, "pthread_create"));
  int left = granted.load();
  if (left == 0) return EAGAIN;
  if (left > 0) granted.store(left - 1);
  return create(thread, attributes, body, argument);
}

namespace ds {
namespace {

// Of Gloo itself, of the parts, of the notes.
TEST(RefusedThreads, AreAnErrorOfJoining) {
  if (!load_transport("gloo")) GTEST_SKIP() << "the transport gloo is not built";
  test::TempFolder folder;
  std::string url = "gloo://" + (folder / "meet");
  for (int threads = 0; threads < 3; ++threads) {
    auto codes = test::spawn_processes(2, [&](int rank) {
      if (rank == 0) granted = threads;
      std::string message =
          test::message_of([&] { create_communicator(url, {.rank = rank, .size = 2, .join_ms = 5000}); });
      if (rank == 0) test::expect_names(message, {"rank 0 cannot join over gloo", "temporarily unavailable"});
    });
    EXPECT_EQ(codes, (std::vector<int>{0, 0})) << threads;
  }
}

}  // namespace
}  // namespace ds
