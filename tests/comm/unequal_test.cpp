#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "comm/reduction.h"
#include "comm/transport/transport.h"
#include "support/errors.h"
#include "support/groups.h"

// Collectives whose blocks differ in size between ranks.
namespace ds {
namespace {

using test::byte_of;
using test::elements;
using Bytes = std::vector<std::byte>;

class UnequalCollectives : public testing::TestWithParam<test::GroupCase> {};

// Returns a block size for each rank: less than the number of ranks, small, or larger than the
// payload that is staged at once.
std::vector<size_t> sizes(int ranks, int turn, size_t large) {
  std::vector<size_t> out;
  for (int r = 0; r < ranks; ++r) {
    const size_t kinds[] = {0, 3, 1000, large + 13};
    out.push_back(kinds[(r + turn) % 4] + static_cast<size_t>(r));
  }
  return out;
}

TEST_P(UnequalCollectives, AllGatherDeliversUnequalBlocks) {
  test::on_group(GetParam(), [](Communicator& comm) {
    for (int turn = 0; turn < 4; ++turn) {
      std::vector<size_t> bytes = sizes(comm.size(), turn, kSlotBytes / 2);
      Bytes in, expected;
      for (size_t i = 0; i < bytes[static_cast<size_t>(comm.rank())]; ++i) {
        in.push_back(byte_of(comm.rank(), 0, i));
      }
      for (int r = 0; r < comm.size(); ++r) {
        for (size_t i = 0; i < bytes[static_cast<size_t>(r)]; ++i)
          expected.push_back(byte_of(r, 0, i));
      }
      Bytes out(expected.size());
      comm.all_gather_v(in.data(), out.data(), bytes, "v");
      ASSERT_TRUE(out == expected) << turn;
    }
  });
}

TEST_P(UnequalCollectives, ReduceScatterDividesIntoUnequalBlocks) {
  test::on_group(GetParam(), [](Communicator& comm) {
    for (DType wire : {DS_DTYPE_F32, DS_DTYPE_BF16, DS_DTYPE_I64}) {
      std::vector<size_t> counts =
          sizes(comm.size(), wire == DS_DTYPE_F32 ? 3 : 1, kSlotBytes / 2 / unit_of(wire));
      size_t total = 0, begin = 0, own = counts[static_cast<size_t>(comm.rank())];
      for (int r = 0; r < comm.size(); ++r) {
        if (r == comm.rank()) begin = total;
        total += counts[static_cast<size_t>(r)];
      }
      std::vector<Bytes> all;
      std::vector<const void*> src;
      for (int r = 0; r < comm.size(); ++r) all.push_back(elements(wire, r, total));
      for (const Bytes& one : all) src.push_back(one.data() + begin * unit_of(wire));
      Bytes expected(own * sum_size(wire)), out(expected.size());
      tree_reduce(src.data(), comm.size(), wire, ReduceOp::sum, expected.data(), own);
      comm.reduce_scatter_v(all[static_cast<size_t>(comm.rank())].data(), out.data(), counts, wire,
                            "v");
      ASSERT_TRUE(out == expected) << dtype_name(wire);
    }
  });
}

TEST_P(UnequalCollectives, AllToAllDeliversUnequalBlocks) {
  test::on_group(GetParam(), [](Communicator& comm) {
    for (int turn = 0; turn < 4; ++turn) {
      auto bytes_of = [&](int from, int to) {
        return sizes(comm.size(), turn + from, kSlotBytes / 2)[static_cast<size_t>(to)];
      };
      std::vector<size_t> send, receive;
      Bytes in, expected;
      for (int r = 0; r < comm.size(); ++r) {
        send.push_back(bytes_of(comm.rank(), r));
        receive.push_back(bytes_of(r, comm.rank()));
        for (size_t i = 0; i < send.back(); ++i) in.push_back(byte_of(comm.rank(), r, i));
        for (size_t i = 0; i < receive.back(); ++i) expected.push_back(byte_of(r, comm.rank(), i));
      }
      Bytes out(expected.size());
      comm.all_to_all_v(in.data(), send, out.data(), receive, "v");
      ASSERT_TRUE(out == expected) << turn;
    }
  });
}

class UnequalCounts : public testing::TestWithParam<test::GroupCase> {};

TEST_P(UnequalCounts, MustAgreeOnAllRanks) {
  test::on_group(GetParam(), [](Communicator& comm) {
    std::vector<size_t> counts = {8, 4};
    if (comm.rank() == 1) counts = {4, 8};
    std::vector<char> in(64), out(64);
    std::string message =
        test::message_of([&] { comm.all_gather_v(in.data(), out.data(), counts, "h.3"); });
    test::expect_names(message, {"ranks 0 and 1 pass different counts to all_gather_v 'h.3'"});
  });
  test::on_group(GetParam(), [](Communicator& comm) {
    std::vector<size_t> send = {1, 7}, receive = {1, 7};
    if (comm.rank() == 1) send = {7, 2}, receive = {6, 2};
    std::vector<char> in(64), out(64);
    std::string message = test::message_of(
        [&] { comm.all_to_all_v(in.data(), send, out.data(), receive, "experts"); });
    test::expect_names(message, {"'experts'", "rank 0 sends 7 bytes to rank 1, which expects 6"});
  });
}

INSTANTIATE_TEST_SUITE_P(Two, UnequalCounts, testing::ValuesIn(test::group_cases(2)),
                         test::group_name);
INSTANTIATE_TEST_SUITE_P(All, UnequalCollectives, testing::ValuesIn(test::group_cases()),
                         test::group_name);

}  // namespace
}  // namespace ds
