#include "core/device/thread_team.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "core/base/error.h"
#include "support/affinity.h"

namespace ds {
namespace {

TEST(ThreadTeam, RunsEveryIndexOnce) {
  for (int threads : {1, 2, 3, 8}) {
    ThreadTeam team(threads);
    for (int64_t count : {0, 1, 2, 7, 1000}) {
      std::vector<std::atomic<int>> hits(static_cast<size_t>(count));
      team.parallel_for(count, [&](int64_t i, int thread) {
        ASSERT_GE(thread, 0);
        ASSERT_LT(thread, threads);
        hits[static_cast<size_t>(i)].fetch_add(1);
      });
      for (auto& h : hits) ASSERT_EQ(h.load(), 1);
    }
  }
}

TEST(ThreadTeam, SizeOneRunsOnTheCaller) {
  ThreadTeam team(1);
  int64_t next = 0;
  std::thread::id self = std::this_thread::get_id();
  team.parallel_for(5, [&](int64_t i, int thread) {
    EXPECT_EQ(i, next++);
    EXPECT_EQ(thread, 0);
    EXPECT_EQ(std::this_thread::get_id(), self);
  });
  EXPECT_EQ(next, 5);
}

TEST(ThreadTeam, TwoThreadsRunAtTheSameTime) {
  ThreadTeam team(2);
  std::atomic<int> inside{0};
  // Each task ends only when the other one is running as well.
  team.parallel_for(2, [&](int64_t, int) {
    inside.fetch_add(1);
    while (inside.load() < 2) std::this_thread::yield();
  });
  EXPECT_EQ(inside.load(), 2);
}

TEST(ThreadTeam, ManyShortLaunchesLoseNoTask) {
  ThreadTeam team(3);
  int64_t sum = 0;
  std::vector<int64_t> cell(5);
  for (int64_t launch = 0; launch < 20000; ++launch) {
    int64_t count = launch % 6;
    // The writes are not atomic: the launch must order them, which ThreadSanitizer checks.
    team.parallel_for(count, [&](int64_t i, int) { cell[static_cast<size_t>(i)] = launch + i; });
    for (int64_t i = 0; i < count; ++i) sum += cell[static_cast<size_t>(i)] - launch - i;
  }
  EXPECT_EQ(sum, 0);
}

TEST(ThreadTeam, WakesAfterSleep) {
  ThreadTeam team(2);
  for (int round = 0; round < 20; ++round) {
    // Longer than the workers spin before they sleep.
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    std::atomic<int> inside{0};
    team.parallel_for(2, [&](int64_t, int) {
      inside.fetch_add(1);
      while (inside.load() < 2) std::this_thread::yield();
    });
    ASSERT_EQ(inside.load(), 2);
  }
}

TEST(ThreadTeam, CallerSleepsUntilALongTaskEnds) {
  ThreadTeam team(2);
  std::atomic<bool> other{false};
  std::atomic<int> finished{0};
  team.parallel_for(2, [&](int64_t, int thread) {
    if (thread == 0) {
      // Waits until the worker has taken the other task.
      while (!other.load()) std::this_thread::yield();
    } else {
      other.store(true);
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    finished.fetch_add(1);
  });
  EXPECT_EQ(finished.load(), 2);
}

TEST(ThreadTeam, RethrowsTheLowestFailureAndStaysUsable) {
  for (int threads : {1, 2, 4}) {
    ThreadTeam team(threads);
    for (int round = 0; round < 50; ++round) {
      try {
        team.parallel_for(20, [](int64_t i, int) {
          if (i == 3 || i == 17) raise(DS_ERROR_NUMERIC, "task {}", i);
        });
        FAIL() << "no exception";
      } catch (const Error& e) {
        EXPECT_STREQ(e.what(), "task 3");
        EXPECT_EQ(e.status(), DS_ERROR_NUMERIC);
      }
    }
    std::atomic<int> ran{0};
    team.parallel_for(9, [&](int64_t, int) { ran.fetch_add(1); });
    EXPECT_EQ(ran.load(), 9);
  }
}

TEST(ThreadTeam, ScratchIsPrivateAndAligned) {
  ThreadTeam team(3, 1000);
  EXPECT_EQ(team.scratch_bytes(), 1000u);
  std::set<std::byte*> seen;
  for (int t = 0; t < 3; ++t) {
    std::span<std::byte> s = team.scratch(t);
    EXPECT_EQ(s.size(), 1000u);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(s.data()) % 64, 0u);
    for (std::byte* other : seen) EXPECT_GE(std::abs(other - s.data()), 1000);
    seen.insert(s.data());
    for (std::byte& b : s) b = std::byte{1};
  }
  EXPECT_THROW(team.scratch(3), Error);
  EXPECT_THROW(ThreadTeam(0), Error);
}

TEST(ThreadTeam, PinsWorkersWhereTheSystemAllowsIt) {
  cpu_set_t mask;
  ASSERT_EQ(sched_getaffinity(0, sizeof mask, &mask), 0);
  int first = 0, last = CPU_SETSIZE - 1;
  while (!CPU_ISSET(first, &mask)) ++first;
  while (!CPU_ISSET(last, &mask)) --last;
  auto before = test::allowed_cpus();
  std::string free = before.begin()->second;
  int nobody = 1 << 20;
  std::vector<int> cpus{last, first, last, nobody, -1};
  ThreadTeam team(5, 1000, cpus);
  std::vector<std::string> expected{std::to_string(first), std::to_string(last), free, free};
  std::sort(expected.begin(), expected.end());
  EXPECT_EQ(test::allowed_since(before), expected);
  auto after = test::allowed_cpus();
  for (const auto& [thread, list] : before) EXPECT_EQ(after[thread], list);
  EXPECT_THROW(ThreadTeam(3, 1000, std::vector<int>{0, 1}), Error);
}

TEST(ThreadTeam, ManyTeamsRunAtOnce) {
  std::vector<std::thread> ranks;
  std::atomic<int64_t> total{0};
  for (int r = 0; r < 4; ++r) {
    ranks.emplace_back([&] {
      ThreadTeam team(2);
      for (int i = 0; i < 200; ++i)
        team.parallel_for(8, [&](int64_t k, int) { total.fetch_add(k); });
    });
  }
  for (std::thread& r : ranks) r.join();
  EXPECT_EQ(total.load(), 4 * 200 * 28);
}

}  // namespace
}  // namespace ds
