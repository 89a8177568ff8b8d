#pragma once
#include <map>
#include <string>
#include <vector>

namespace ds::test {

// Returns, for each thread of this process by its id, the CPUs it may run on, as the kernel lists
// them ("0-3,7").
std::map<std::string, std::string> allowed_cpus();

// Returns the kernel's lists for the threads that are not in `before`, sorted.
std::vector<std::string> allowed_since(const std::map<std::string, std::string>& before);

}  // namespace ds::test
