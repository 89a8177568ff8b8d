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

// Runs ranks in a process to which the system grants no further threads.
namespace {

// The number of threads that may still be started. A negative number means no limit.
std::atomic<int> granted{-1};

}  // namespace

// Replaces the C library's pthread_create, for this program and the shared objects that it loads.
extern "C" __attribute__((visibility("default"))) int pthread_create(
    pthread_t* thread, const pthread_attr_t* attributes, void* (*body)(void*),
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

// Ranks over TCP start no threads, no matter how many ranks there are.
TEST(RefusedThreads, RanksFormAGroupWithoutThreads) {
  if (!load_transport("tcp")) GTEST_SKIP() << "the transport tcp is not built";
  test::TempFolder folder;
  std::string url = "tcp://" + (folder / "meet");
  auto codes = test::spawn_processes(3, [&](int rank) {
    granted = 0;
    auto comm = create_communicator(url, {.rank = rank, .size = 3, .join_ms = 5000});
    float one = 1, sum = 0;
    comm->all_reduce(&one, &sum, 1, DS_DTYPE_F32, "sum");
    EXPECT_EQ(sum, 3);
  });
  EXPECT_EQ(codes, (std::vector<int>{0, 0, 0}));
}

}  // namespace
}  // namespace ds
