// Tests memory limits of control groups, read from a folder laid out like /proc and /sys.
#include "core/base/host_memory.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "support/temp_folder.h"

namespace ds {
namespace {

class GroupMemory : public testing::Test {
 protected:
  void put(const std::string& path, const std::string& text) {
    std::filesystem::path file = folder_.path() + path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text << "\n";
  }
  // Returns the lowest limit of the process's groups.
  int64_t limit(int64_t swap) {
    int64_t out = kNoLimit;
    for (const GroupLimit& group : group_limits(swap, folder_.path()))
      out = std::min(out, group.bytes);
    return out;
  }
  test::TempFolder folder_;
};

TEST_F(GroupMemory, WithoutGroupsThereIsNoLimit) {
  EXPECT_EQ(limit(100), kNoLimit);
  put("/proc/self/cgroup", "what is this\n:\n0:memory");
  EXPECT_EQ(limit(100), kNoLimit);
}

TEST_F(GroupMemory, InVersion2TheLowestAncestorLimits) {
  put("/proc/self/cgroup", "0::/jobs/one/task");
  put("/sys/fs/cgroup/jobs/one/task/memory.max", "max");
  EXPECT_EQ(limit(100), kNoLimit);
  put("/sys/fs/cgroup/jobs/one/memory.max", "5000");
  put("/sys/fs/cgroup/jobs/memory.max", "9000");
  put("/sys/fs/cgroup/jobs/two/memory.max", "1");
  EXPECT_EQ(limit(100), 5100);
  put("/sys/fs/cgroup/jobs/one/task/memory.swap.max", "30");
  EXPECT_EQ(limit(100), 5030);
  EXPECT_EQ(limit(10), 5010);
}

TEST_F(GroupMemory, InVersion1TheSwapLimitAppliesIfPresent) {
  put("/proc/self/cgroup", "5:cpu,cpuacct:/a\n4:hugetlb,memory:/docker/abc\n0::/");
  put("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712");
  EXPECT_EQ(limit(100), kNoLimit);
  // In a container, the mount begins at the container's group.
  put("/sys/fs/cgroup/memory/memory.limit_in_bytes", "7000");
  EXPECT_EQ(limit(100), 7100);
  put("/sys/fs/cgroup/memory/docker/abc/memory.limit_in_bytes", "6000");
  put("/sys/fs/cgroup/memory/docker/memory.memsw.limit_in_bytes", "6050");
  EXPECT_EQ(limit(100), 6050);
  EXPECT_EQ(limit(20), 6020);
}

// Two processes have separate groups inside a common group, whose limit applies to both.
TEST_F(GroupMemory, EveryEnclosingGroupHasALimit) {
  put("/sys/fs/cgroup/job/memory.max", "9000");
  std::vector<std::vector<GroupLimit>> tasks;
  for (const char* task : {"a", "b"}) {
    put("/proc/self/cgroup", std::string("0::/job/") + task);
    put(std::string("/sys/fs/cgroup/job/") + task + "/memory.max", "5000");
    tasks.push_back(group_limits(0, folder_.path()));
    ASSERT_EQ(tasks.back().size(), 2u);
    EXPECT_EQ(tasks.back()[0].bytes, 5000);
    EXPECT_EQ(tasks.back()[1].bytes, 9000);
  }
  EXPECT_NE(tasks[0][0].id, tasks[1][0].id);
  EXPECT_EQ(tasks[0][1].id, tasks[1][1].id);
}

TEST(HostMemory, AMachineHasMemory) {
  EXPECT_GT(host_memory().machine, 1 << 20);
  for (const GroupLimit& group : host_memory().groups) EXPECT_GT(group.bytes, 1 << 20);
  EXPECT_EQ(machine_identity().size(), 36u);
}

}  // namespace
}  // namespace ds
