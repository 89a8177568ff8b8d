#pragma once
#include <gtest/gtest.h>

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "comm/communicator.h"

namespace ds::test {

struct GroupCase {
  // "threads", "shm", "post" (a plugin's transport between threads), "caller" (callbacks of a host
  // application, between threads), "swaps" (these callbacks without all_gather), "tcp", or the
  // transport of DS_TEST_GROUP.
  std::string transport;
  int ranks = 1;
  // Over threads and shm, receivers read large payloads directly from the sender's memory.
  bool direct = true;
  // See CommOptions.
  int cores = 64;
};

// Returns cases for every transport within one host, with 1 to 4 ranks. If DS_TEST_GROUP is set,
// this process is one rank of the group whose comm url is `env`, and that group is the only case.
// In this way any plugin can run this suite, whoever starts its ranks (tests/comm/mpi.sh,
// tests/interop/oneccl.py).
std::vector<GroupCase> group_cases();
// Returns the cases with that many ranks in which every rank learns of the failure of any other.
// Ignores DS_TEST_GROUP and leaves out callbacks.
std::vector<GroupCase> group_cases(int ranks);
std::string group_name(const testing::TestParamInfo<GroupCase>& info);
// Prints a case for GoogleTest, which would otherwise print the bytes of the object.
void PrintTo(const GroupCase& group, std::ostream* out);

// Runs body(communicator) on every rank, or, with DS_TEST_GROUP, on the rank of this process.
void on_group(const GroupCase& group, const std::function<void(Communicator&)>& body);

// Returns finite values of the given type. For floating types their sum depends on the order of
// addition.
std::vector<std::byte> elements(DType dtype, int rank, size_t count);
// Returns a byte that depends on its sender, its receiver and its position.
std::byte byte_of(int from, int to, size_t i);

}  // namespace ds::test
