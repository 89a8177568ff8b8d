#pragma once
#include <gtest/gtest.h>

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "comm/communicator.h"

namespace ds::test {

struct GroupCase {
  std::string transport;  // threads, shm, post (a plugin's, between threads), tcp, or mpi
  int ranks = 1;
  bool direct = true;  // large payloads are read where they lie, over threads and shm
  int cores = 64;      // CommOptions
};

// All transports of one host with 1 to 4 ranks; under mpirun (tests/comm/mpi.sh) the ranks that it started,
// and only those.
std::vector<GroupCase> group_cases();
// Those of so many ranks, never mpi: all ranks see what becomes of each.
std::vector<GroupCase> group_cases(int ranks);
std::string group_name(const testing::TestParamInfo<GroupCase>& info);
void PrintTo(const GroupCase& group, std::ostream* out);  // of GoogleTest, which else prints bytes

// Runs body(communicator) on every rank; of mpi, on the rank that this process is.
void on_group(const GroupCase& group, const std::function<void(Communicator&)>& body);

// Finite values of any type, whose sum in floating types depends on the order.
std::vector<std::byte> elements(DType dtype, int rank, size_t count);
// A byte that shows where it comes from and where it belongs.
std::byte byte_of(int from, int to, size_t i);

}  // namespace ds::test
