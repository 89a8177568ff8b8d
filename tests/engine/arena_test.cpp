// Tests an engine's memory when it grows.
#include "engine/arena.h"

#include <gtest/gtest.h>

#include <cstring>

#include "core/device/host_device.h"
#include "support/resident.h"

namespace ds {
namespace {

constexpr int64_t kMiB = 1 << 20;

MemoryPlan plan_of(int64_t device_bytes) {
  MemoryPlan plan;
  plan.tiers[0].persistent = device_bytes;
  return plan;
}

// Like in the memory of leases, most of the arena has no pages. The new arena needs memory only for
// the existing pages. A tensor that the caller still holds keeps the old arena alive.
TEST(Arena, GrowingCostsOnlyExistingPages) {
  for (bool held : {false, true}) {
    HostDevice device;
    EngineMemory memory(device, plan_of(1024 * kMiB), "", [] {});
    std::byte* old = memory.memory().arena[0][0];
    for (int64_t at : {int64_t{0}, 400 * kMiB + 5000, 1024 * kMiB - 10})
      std::memset(old + at, 7, 10);
    std::shared_ptr<void> view = held ? memory.hold(old + 400 * kMiB) : nullptr;
    int64_t before = test::resident_bytes();
    memory.grow(plan_of(1536 * kMiB));
    // The three written places need at most three huge pages.
    EXPECT_LT(test::resident_bytes() - before, 32 * kMiB);
    const std::byte* now = memory.memory().arena[0][0];
    for (int64_t at : {int64_t{0}, 400 * kMiB + 5000, 1024 * kMiB - 10}) {
      EXPECT_EQ(now[at], std::byte{7});
      EXPECT_EQ(now[at + 9], std::byte{7});
      EXPECT_EQ(now[at + 10], std::byte{0});
      EXPECT_TRUE(!held || old[at + 9] == std::byte{7});
    }
    EXPECT_EQ(now[1536 * kMiB - 1], std::byte{0});
    EXPECT_EQ(now, old);
  }
}

TEST(Arena, AHeldArenaIsCopiedIfItsAddressesDoNotSuffice) {
  HostDevice device;
  EngineMemory memory(device, plan_of(kMiB), "", [] {});
  std::byte* old = memory.memory().arena[0][0];
  old[kMiB - 1] = std::byte{7};
  std::shared_ptr<void> view = memory.hold(old);
  memory.grow(plan_of(100 * kMiB));
  const std::byte* now = memory.memory().arena[0][0];
  EXPECT_NE(now, old);
  EXPECT_EQ(now[kMiB - 1], std::byte{7});
  EXPECT_EQ(now[kMiB], std::byte{0});
  EXPECT_EQ(old[kMiB - 1], std::byte{7});
}

}  // namespace
}  // namespace ds
