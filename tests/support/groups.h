#pragma once
#include <gtest/gtest.h>

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "comm/communicator.h"

namespace ds::test {

struct GroupCase {
  // threads, shm, post (a plugin's, between threads), caller (callbacks of a program, likewise),
  // swaps (the same program without an all_gather), tcp, or that of DS_TEST_GROUP
  std::string transport;
  int ranks = 1;
  bool direct = true;  // large payloads are read where they lie, over threads and shm
  int cores = 64;      // CommOptions
};

// All transports of one host with 1 to 4 ranks. Where DS_TEST_GROUP is set, this process is one
// rank of the group that the comm url `env` names, and that group is the only case: so any plugin
// runs this suite, whoever starts its ranks (tests/comm/mpi.sh, tests/interop/oneccl.py).
std::vector<GroupCase> group_cases();
// Those of so many ranks in which all ranks see what becomes of each, without regard to
// DS_TEST_GROUP; no callbacks.
std::vector<GroupCase> group_cases(int ranks);
std::string group_name(const testing::TestParamInfo<GroupCase>& info);
void PrintTo(const GroupCase& group, std::ostream* out);  // of GoogleTest, which else prints bytes

// Runs body(communicator) on every rank; with DS_TEST_GROUP, on the rank that this process is.
void on_group(const GroupCase& group, const std::function<void(Communicator&)>& body);

// Finite values of any type, whose sum in floating types depends on the order.
std::vector<std::byte> elements(DType dtype, int rank, size_t count);
// A byte that shows where it comes from and where it belongs.
std::byte byte_of(int from, int to, size_t i);

}  // namespace ds::test
