#include <fmt/core.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <unistd.h>

#include <memory>
#include <numeric>
#include <vector>

#include "comm/shared_exchange.h"
#include "support/errors.h"
#include "support/groups.h"
#include "support/spawn.h"

// If ranks outnumber cores, payloads of equal size are staged even above 1 MiB, provided that those
// of all ranks have at least 8 MiB together. Other payloads above 1 MiB are read in place. All
// ranks of a group decide alike.
namespace ds {
namespace {

constexpr size_t kMiB = size_t{1} << 20;

std::unique_ptr<SharedExchange> join(const char* name, CommOptions options) {
  std::string path = fmt::format("crowd-{}-{}", name, getpid());
  return std::make_unique<SharedExchange>(share_threads(path, options),
                                          Membership::whole(options.rank, options.size), options);
}

// Checks the largest part that a round may have.
TEST(Crowd, MoreRanksThanCoresUseSmallerParts) {
  test::spawn_threads(2, [](int rank) {
    for (int cores : {1, 2}) {
      auto exchange = join("parts", {.rank = rank, .size = 2, .cores = cores});
      bool crowded = cores == 1;
      EXPECT_EQ(exchange->prepare(Round::same, 4 * kMiB), crowded ? kMiB / 4 : 4 * kMiB);
      EXPECT_EQ(exchange->prepare(Round::same, 4 * kMiB - 1), 4 * kMiB);
      EXPECT_EQ(exchange->prepare(Round::same, kMiB), kMiB);
      for (Round kind : {Round::one, Round::each, Round::seen}) {
        EXPECT_EQ(exchange->prepare(kind, 64 * kMiB), SIZE_MAX);
      }
    }
  });
}

TEST(Crowd, ASplitGroupStagesLikeItsParent) {
  test::spawn_threads(4, [](int rank) {
    for (int cores : {3, 4}) {
      auto exchange = join("split", {.rank = rank, .size = 4, .cores = cores});
      int first = rank / 2 * 2;
      std::string name = fmt::format("half-{}-{}", getpid(), first);
      auto half = exchange->split(name, {first, first + 1}, "halves");
      EXPECT_EQ(half->prepare(Round::same, 4 * kMiB), cores == 3 ? kMiB / 4 : 4 * kMiB);
    }
  });
}

// Each rank is bound to one of two cores.
TEST(Crowd, CoresAreCountedOverAllRanks) {
  cpu_set_t all;
  ASSERT_EQ(sched_getaffinity(0, sizeof all, &all), 0);
  std::vector<size_t> cores;
  for (size_t i = 0; i < CPU_SETSIZE; ++i) {
    if (CPU_ISSET(i, &all)) cores.push_back(i);
  }
  if (cores.size() < 2) GTEST_SKIP() << "this process may run on one core alone";
  test::spawn_threads(3, [&](int rank) {
    cpu_set_t own;
    CPU_ZERO(&own);
    CPU_SET(cores[static_cast<size_t>(rank % 2)], &own);
    ASSERT_EQ(sched_setaffinity(0, sizeof own, &own), 0);
    EXPECT_EQ(join("bound", {.rank = rank, .size = 3})->prepare(Round::same, 4 * kMiB), kMiB / 4);
    if (rank == 2) return;
    EXPECT_EQ(join("pair", {.rank = rank, .size = 2})->prepare(Round::same, 4 * kMiB), 4 * kMiB);
  });
}

// One of the blocks is large and one is empty. Then one rank aborts and frees memory that others
// might still read.
TEST(Crowd, UnequalBlocksAndAbortsAreHandled) {
  test::spawn_threads(3, [](int rank) {
    auto comm = create_communicator(fmt::format("threads://crowd-unequal-{}", getpid()),
                                    {.rank = rank, .size = 3, .cores = 1});
    std::vector<size_t> sizes = {5, 4 * kMiB + 7, 0};
    std::vector<std::byte> in(sizes[static_cast<size_t>(rank)]),
        out(std::accumulate(sizes.begin(), sizes.end(), size_t{0}));
    for (size_t i = 0; i < in.size(); ++i) in[i] = test::byte_of(rank, 0, i);
    comm->all_gather_v(in.data(), out.data(), sizes, "w");
    size_t wrong = 0, at = 0;
    for (size_t r = 0; r < 3; ++r) {
      for (size_t i = 0; i < sizes[r]; ++i)
        wrong += out[at++] != test::byte_of(static_cast<int>(r), 0, i);
    }
    EXPECT_EQ(wrong, 0u);
    auto data = std::make_unique<std::vector<char>>(4 * kMiB);
    std::vector<char> gathered(12 * kMiB);
    auto gather = [&] { comm->all_gather(data->data(), gathered.data(), 4 * kMiB, "again"); };
    for (int i = 0; i < 3; ++i) gather();
    if (rank == 1) {
      comm->abort("enough");
      data.reset();
    } else {
      test::expect_names(test::message_of([&] {
                           for (;;) gather();
                         }),
                         {"enough"});
    }
  });
}

}  // namespace
}  // namespace ds
