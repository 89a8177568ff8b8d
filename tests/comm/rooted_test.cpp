#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "comm/reduction.h"
#include "comm/transport/transport.h"
#include "support/groups.h"

// Compares reductions of every type and operation, and collectives with a root, with results that
// each rank computes locally.
namespace ds {
namespace {

using test::byte_of;
using test::elements;
using Bytes = std::vector<std::byte>;

class RootedCollectives : public testing::TestWithParam<test::GroupCase> {};

// Returns the reduction of `count` elements over all ranks.
Bytes reduced(int ranks, DType wire, ReduceOp op, size_t count) {
  std::vector<Bytes> all;
  std::vector<const void*> src;
  for (int r = 0; r < ranks; ++r) all.push_back(elements(wire, r, count));
  for (const Bytes& one : all) src.push_back(one.data());
  Bytes out(count * sum_size(wire));
  tree_reduce(src.data(), ranks, wire, op, out.data(), count);
  return out;
}

constexpr ReduceOp kOps[] = {ReduceOp::sum, ReduceOp::mean, ReduceOp::max, ReduceOp::min};
constexpr DType kTypes[] = {DS_DTYPE_F32, DS_DTYPE_BF16, DS_DTYPE_F16, DS_DTYPE_F64,
                            DS_DTYPE_I32, DS_DTYPE_I64,  DS_DTYPE_U8};

void check_reductions(Communicator& comm, DType wire, ReduceOp op, size_t each) {
  auto w = static_cast<size_t>(comm.size()), me = static_cast<size_t>(comm.rank());
  size_t count = each * w + 1, sum = sum_size(wire);
  Bytes in = elements(wire, comm.rank(), count), expected = reduced(comm.size(), wire, op, count);
  Bytes all(count * sum), own(each * sum);
  comm.all_reduce(in.data(), all.data(), count, wire, "all", op);
  ASSERT_TRUE(all == expected) << dtype_name(wire) << " " << reduce_op_name(op) << " " << count;
  comm.reduce_scatter(in.data(), own.data(), each, wire, "own", op);
  Bytes part(expected.begin() + static_cast<long>(me * each * sum),
             expected.begin() + static_cast<long>((me + 1) * each * sum));
  ASSERT_TRUE(own == part) << dtype_name(wire) << " " << reduce_op_name(op) << " " << each;
  for (int root : {0, comm.size() - 1}) {
    Bytes out(comm.rank() == root ? count * sum : 0);
    comm.reduce(in.data(), out.data(), count, wire, root, "root", op);
    ASSERT_TRUE(comm.rank() != root || out == expected)
        << dtype_name(wire) << " " << reduce_op_name(op);
  }
}

TEST_P(RootedCollectives, ReductionsSupportEveryTypeAndOperation) {
  test::on_group(GetParam(), [](Communicator& comm) {
    for (DType wire : kTypes) {
      bool whole = wire == DS_DTYPE_I32 || wire == DS_DTYPE_I64 || wire == DS_DTYPE_U8;
      for (ReduceOp op : kOps) {
        if (whole && op == ReduceOp::mean) continue;
        for (size_t each : {size_t{0}, size_t{5}, size_t{300}})
          check_reductions(comm, wire, op, each);
      }
    }
    check_reductions(comm, DS_DTYPE_F64, ReduceOp::mean, kSlotBytes / 2 / sizeof(double) + 77);
  });
}

TEST_P(RootedCollectives, GatherAndScatterDeliverEveryBlock) {
  test::on_group(GetParam(), [](Communicator& comm) {
    auto w = static_cast<size_t>(comm.size());
    for (int root : {0, comm.size() - 1}) {
      bool here = comm.rank() == root;
      for (size_t bytes : {size_t{0}, size_t{1}, size_t{4097}, kSlotBytes / 2 + 9}) {
        Bytes in(bytes), all(here ? bytes * w : 0), expected(all.size()), own(bytes);
        for (size_t i = 0; i < bytes; ++i) in[i] = byte_of(comm.rank(), root, i);
        for (size_t i = 0; i < expected.size(); ++i) {
          expected[i] = byte_of(static_cast<int>(i / bytes), root, i % bytes);
        }
        comm.gather(in.data(), all.data(), bytes, root, "g");
        ASSERT_TRUE(all == expected) << bytes;
        comm.scatter(expected.data(), own.data(), bytes, root, "s");
        ASSERT_TRUE(own == in) << bytes;
      }
    }
    auto counts = comm.counts();
    EXPECT_EQ(counts["gather"].calls, 8);
    int received = comm.size() == 1                                     ? 0
                   : comm.rank() == 0 || comm.rank() == comm.size() - 1 ? 1
                                                                        : 2;
    EXPECT_EQ(counts["scatter"].bytes,
              received * static_cast<int64_t>(1 + 4097 + kSlotBytes / 2 + 9));
  });
}

INSTANTIATE_TEST_SUITE_P(All, RootedCollectives, testing::ValuesIn(test::group_cases()),
                         test::group_name);

}  // namespace
}  // namespace ds
