#include <gtest/gtest.h>

#include <vector>

#include "comm/reduction.h"
#include "support/errors.h"
#include "support/groups.h"

// Compares one collective over a list of buffers with one collective per buffer, bit for bit.
namespace ds {
namespace {

using test::elements;
using Bytes = std::vector<std::byte>;

class Coalesced : public testing::TestWithParam<test::GroupCase> {};

// Small buffers that are packed together, one that is sent separately, and empty ones, including
// the last.
const std::vector<size_t> kCounts = {5, 0, 1000, 77, 270001, 3, 0, 110000, 110000, 110000, 4, 0};

struct Lists {
  std::vector<Bytes> given;
  std::vector<const void*> in;
  std::vector<Bytes> taken, expected;
  std::vector<void*> out;

  void add(Bytes bytes, size_t out_bytes) {
    given.push_back(std::move(bytes));
    taken.emplace_back(out_bytes, std::byte{0xee});
    expected.emplace_back(out_bytes, std::byte{0xdd});
    in.push_back(given.back().data());
    out.push_back(taken.back().data());
  }
};

// Proves {comm.submit.list}, with the next test.
TEST_P(Coalesced, AllReduceHasTheSameBits) {
  test::on_group(GetParam(), [](Communicator& comm) {
    for (DType wire : {DS_DTYPE_F32, DS_DTYPE_BF16}) {
      for (ReduceOp op : {ReduceOp::sum, ReduceOp::mean}) {
        Lists lists;
        for (size_t count : kCounts)
          lists.add(elements(wire, comm.rank() + static_cast<int>(count % 7), count),
                    count * sum_size(wire));
        for (size_t i = 0; i < kCounts.size(); ++i)
          comm.all_reduce(lists.in[i], lists.expected[i].data(), kCounts[i], wire, "one", op);
        auto before = comm.counts();
        comm.all_reduce_coalesced(lists.in, lists.out, kCounts, wire, "all", op);
        ASSERT_TRUE(lists.taken == lists.expected) << dtype_name(wire);
        EXPECT_EQ(comm.counts()["all_reduce_coalesced"].calls,
                  before["all_reduce_coalesced"].calls + 1);
      }
    }
  });
}

TEST_P(Coalesced, AllGatherReduceScatterAndBroadcast) {
  test::on_group(GetParam(), [](Communicator& comm) {
    auto ranks = static_cast<size_t>(comm.size());
    Lists gather, scatter;
    for (size_t count : kCounts) {
      gather.add(elements(DS_DTYPE_U8, comm.rank() + static_cast<int>(count % 5), count),
                 count * ranks);
      scatter.add(elements(DS_DTYPE_BF16, comm.rank(), count * ranks), count * sizeof(float));
    }
    for (size_t i = 0; i < kCounts.size(); ++i) {
      comm.all_gather(gather.in[i], gather.expected[i].data(), kCounts[i], "one");
      comm.reduce_scatter(scatter.in[i], scatter.expected[i].data(), kCounts[i], DS_DTYPE_BF16,
                          "one");
    }
    comm.all_gather_coalesced(gather.in, gather.out, kCounts, "all");
    ASSERT_TRUE(gather.taken == gather.expected);
    comm.reduce_scatter_coalesced(scatter.in, scatter.out, kCounts, DS_DTYPE_BF16, "all");
    ASSERT_TRUE(scatter.taken == scatter.expected);
    int root = comm.size() - 1;
    std::vector<Bytes> data, expected;
    std::vector<void*> places;
    for (size_t count : kCounts) {
      data.push_back(elements(DS_DTYPE_U8, comm.rank(), count));
      expected.push_back(elements(DS_DTYPE_U8, root, count));
      places.push_back(data.back().data());
    }
    comm.broadcast_coalesced(places, kCounts, root, "all");
    ASSERT_TRUE(data == expected);
  });
}

TEST_P(Coalesced, CountsReceivedBytesOfLists) {
  test::on_group(GetParam(), [](Communicator& comm) {
    auto others = static_cast<int64_t>(comm.size()) - 1;
    std::vector<size_t> counts = {64, 128};
    std::vector<float> in(1024), out(4096);
    std::vector<const void*> from = {in.data(), in.data() + 512};
    std::vector<void*> to = {out.data(), out.data() + 2048};
    comm.all_gather_coalesced(from, to, counts, "a");
    comm.reduce_scatter_coalesced(from, to, counts, DS_DTYPE_F32, "b");
    comm.all_reduce_coalesced({}, {}, {}, DS_DTYPE_F32, "nothing");
    EXPECT_EQ(comm.counts()["all_gather_coalesced"].bytes, 192 * others);
    EXPECT_EQ(comm.counts()["reduce_scatter_coalesced"].bytes, 192 * 4 * others);
    EXPECT_EQ(comm.counts()["all_reduce_coalesced"].bytes, 0);
  });
}

class CoalescedPairs : public testing::TestWithParam<test::GroupCase> {};

TEST_P(CoalescedPairs, ListsMustAgreeOnBothRanks) {
  test::on_group(GetParam(), [](Communicator& comm) {
    std::vector<size_t> counts = {8, 4};
    if (comm.rank() == 1) counts = {4, 8};
    std::vector<float> data(16);
    std::vector<const void*> in = {data.data(), data.data() + 8};
    std::vector<void*> out = {data.data(), data.data() + 8};
    test::message_of([&] { comm.all_reduce_coalesced(in, {}, counts, DS_DTYPE_F32, "x"); },
                     DS_ERROR_INVALID_ARGUMENT);
    std::string message =
        test::message_of([&] { comm.all_reduce_coalesced(in, out, counts, DS_DTYPE_F32, "h.3"); });
    test::expect_names(message,
                       {"ranks 0 and 1 pass different counts to all_reduce_coalesced f32 'h.3'"});
  });
}

INSTANTIATE_TEST_SUITE_P(Two, CoalescedPairs, testing::ValuesIn(test::group_cases(2)),
                         test::group_name);
INSTANTIATE_TEST_SUITE_P(All, Coalesced, testing::ValuesIn(test::group_cases()), test::group_name);

}  // namespace
}  // namespace ds
