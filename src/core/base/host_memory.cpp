#include "core/base/host_memory.h"

#include <sys/stat.h>
#include <sys/sysinfo.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/ascii.h"
#include "core/base/file_stream.h"

namespace ds {
namespace {

// Returns the first word of the first line of a file, or "" if there is none.
std::string first_word(const std::string& path) {
  InputFile file(path);
  std::string line;
  std::getline(file, line);
  const std::vector<std::string_view> words = ascii_words(line);
  return words.empty() ? "" : std::string(words[0]);
}

// Returns the limit in a file, in bytes, or kNoLimit if the file is absent or says "max".
int64_t limit_in(const std::string& path) {
  const int64_t bytes = ascii_number<int64_t>(first_word(path)).value_or(-1);
  return bytes >= 0 ? std::min(bytes, kNoLimit) : kNoLimit;
}

// Calls each(folder) for the group's folder and its parents, up to the mount. In a container the
// group's name may be the one on the host, which the container's mount does not show. Then the
// mount itself is the container's group.
template <typename F>
void for_groups(const std::string& mount, std::string group, F each) {
  while (!group.empty() && group != "/") {
    each(mount + group);
    group.erase(group.rfind('/'));
  }
  each(mount);
}

// Returns whether a comma-separated list of v1 controllers contains "memory".
bool has_memory(std::string_view controllers) {
  while (!controllers.empty()) {
    size_t end = std::min(controllers.find(','), controllers.size());
    if (controllers.substr(0, end) == "memory") return true;
    controllers.remove_prefix(std::min(end + 1, controllers.size()));
  }
  return false;
}

// Calls each(folder, v2) for the folders of the groups around the process, from the innermost
// outwards.
template <typename F>
void for_groups_of_process(const std::string& root, F each) {
  const std::string mount = root + "/sys/fs/cgroup";
  InputFile groups(root + "/proc/self/cgroup");
  // Lines are "4:memory:/name" under v1 and "0::/name" under v2.
  for (std::string line; std::getline(groups, line);) {
    size_t first = line.find(':'), second = first == line.npos ? first : line.find(':', first + 1);
    if (second == line.npos || line.compare(second + 1, 1, "/") != 0) continue;
    std::string controllers = line.substr(first + 1, second - first - 1),
                group = line.substr(second + 1);
    const bool v2 = controllers.empty();
    if (!v2 && !has_memory(controllers)) continue;
    for_groups(v2 ? mount : mount + "/memory", group,
               [&](const std::string& folder) { each(folder, v2); });
  }
}

// Returns the id of a group. The device and inode of its folder identify a group across containers,
// whose paths differ.
std::string identity_of(const std::string& folder) {
  struct stat status {};
  if (stat(folder.c_str(), &status) != 0) return folder;
  return std::to_string(status.st_dev) + ":" + std::to_string(status.st_ino);
}

}  // namespace

std::vector<GroupLimit> group_limits(int64_t swap, const std::string& root) {
  struct Group {
    std::string folder;
    // In v1, `both` limits memory and swap together.
    int64_t memory, both;
  };
  std::vector<Group> found;
  int64_t swap_left = swap;
  // Groups come from the innermost outwards, so swap_left is the lowest swap limit so far.
  for_groups_of_process(root, [&](const std::string& folder, bool v2) {
    if (v2) {
      swap_left = std::min(swap_left, limit_in(folder + "/memory.swap.max"));
      found.push_back({folder, limit_in(folder + "/memory.max"), kNoLimit});
    } else {
      found.push_back({folder, limit_in(folder + "/memory.limit_in_bytes"),
                       limit_in(folder + "/memory.memsw.limit_in_bytes")});
    }
  });
  std::vector<GroupLimit> out;
  for (const Group& group : found) {
    const int64_t bytes = std::min({group.memory + swap_left, group.both, kNoLimit});
    if (bytes < kNoLimit) out.push_back({.id = identity_of(group.folder), .bytes = bytes});
  }
  return out;
}

std::string machine_identity() { return first_word("/proc/sys/kernel/random/boot_id"); }

namespace {

// Returns the kernel's estimate of the memory that new processes could use without swapping, plus
// the free swap, or -1 if the kernel has no estimate.
int64_t available_memory() {
  InputFile file("/proc/meminfo");
  int64_t memory = -1, swap = 0;
  for (std::string line; std::getline(file, line);) {
    const std::vector<std::string_view> words = ascii_words(line);
    const int64_t kib = words.size() < 2 ? 0 : ascii_number<int64_t>(words[1]).value_or(0);
    if (words.empty()) continue;
    if (words[0] == "MemAvailable:") memory = kib * 1024;
    if (words[0] == "SwapFree:") swap = kib * 1024;
  }
  return memory < 0 ? -1 : memory + swap;
}

}  // namespace

HostMemory host_memory() {
  struct sysinfo host {};
  sysinfo(&host);
  auto unit = static_cast<int64_t>(host.mem_unit);
  int64_t memory = static_cast<int64_t>(host.totalram) * unit,
          swap = static_cast<int64_t>(host.totalswap) * unit;
  return {memory + swap, group_limits(swap), available_memory()};
}

}  // namespace ds
