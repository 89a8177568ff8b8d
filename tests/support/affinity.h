#pragma once
#include <map>
#include <string>
#include <vector>

namespace ds::test {

// Per thread of this process, by id: the CPUs it may run on, as the kernel lists them ("0-3,7").
std::map<std::string, std::string> allowed_cpus();

// What the kernel lists for the threads that `before` has not, sorted.
std::vector<std::string> allowed_since(const std::map<std::string, std::string>& before);

}  // namespace ds::test
