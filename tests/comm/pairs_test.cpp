#include <gtest/gtest.h>

#include <vector>

#include "comm/transport/transport.h"
#include "support/errors.h"
#include "support/groups.h"

// Messages between two ranks, and groups of some of the ranks.
namespace ds {
namespace {

using test::byte_of;
using test::expect_names;
using test::message_of;
using Bytes = std::vector<std::byte>;

class PairsCollectives : public testing::TestWithParam<test::GroupCase> {};

Bytes message(int from, int to, size_t bytes) {
  Bytes out(bytes);
  for (size_t i = 0; i < bytes; ++i) out[i] = byte_of(from, to, i);
  return out;
}

// Every rank sends to every other rank, between collectives of all ranks.
TEST_P(PairsCollectives, EveryRankCanSendToEveryOtherRank) {
  test::on_group(GetParam(), [](Communicator& comm) {
    for (size_t bytes : {size_t{0}, size_t{1}, kSlotBytes / 2 - 1, kSlotBytes + 5}) {
      for (int from = 0; from < comm.size(); ++from) {
        for (int to = 0; to < comm.size(); ++to) {
          if (from == to) continue;
          Bytes sent = message(from, to, bytes), got(bytes);
          if (comm.rank() == from) comm.send(sent.data(), bytes, to, "activations");
          if (comm.rank() != to) continue;
          comm.receive(got.data(), bytes, from, "activations");
          ASSERT_TRUE(got == sent) << bytes;
        }
      }
      auto w = static_cast<size_t>(comm.size());
      Bytes all(100 * w), own = message(comm.rank(), 9, 100);
      comm.all_gather(own.data(), all.data(), 100, "between");
      for (size_t r = 0; r < w; ++r) {
        Bytes other(all.begin() + static_cast<long>(100 * r),
                    all.begin() + static_cast<long>(100 * (r + 1)));
        ASSERT_TRUE(other == message(static_cast<int>(r), 9, 100));
      }
    }
  });
}

TEST_P(PairsCollectives, ASplitCanReorderAllRanks) {
  test::on_group(GetParam(), [](Communicator& comm) {
    auto group = comm.split(0, -comm.rank(), "reversed");
    const int32_t mine = comm.rank();
    std::vector<int32_t> all(static_cast<size_t>(comm.size()));
    group->all_gather(&mine, all.data(), sizeof mine, "ranks");
    for (size_t r = 0; r < all.size(); ++r)
      ASSERT_EQ(all[r], comm.size() - 1 - static_cast<int32_t>(r));
  });
}

class TwoRanks : public testing::TestWithParam<test::GroupCase> {};

TEST_P(TwoRanks, CallsThatDoNotMatchAreNamed) {
  char data[16] = {};
  test::on_group(GetParam(), [&](Communicator& comm) {
    int other = 1 - comm.rank();
    expect_names(message_of([&] { comm.send(data, 4, other, "x"); }),
                 {"send 0 to 1", "send 1 to 0"});
  });
  test::on_group(GetParam(), [&](Communicator& comm) {
    std::string message = message_of([&] {
      if (comm.rank() == 0) comm.send(data, 4, 1, "x");
      if (comm.rank() == 1) comm.receive(data, 5, 0, "x");
    });
    expect_names(message, {"'x' of 4 bytes", "'x' of 5 bytes"});
  });
  test::on_group(GetParam(), [&](Communicator& comm) {
    std::string message = message_of([&] {
      if (comm.rank() == 0) comm.receive(data, 4, 1, "x");
      if (comm.rank() == 1) comm.barrier("y");
    });
    expect_names(message, {"send 1 to 0 'x'", "barrier 'y'"});
  });
}

TEST_P(PairsCollectives, SendingToOneselfOrNobodyIsRefused) {
  test::on_group(GetParam(), [](Communicator& comm) {
    char data = 0;
    for (int to : {comm.rank(), -1, comm.size()}) {
      expect_names(message_of([&] { comm.send(&data, 1, to, "x"); }, DS_ERROR_INVALID_ARGUMENT),
                   {fmt::format("got {}", to)});
    }
  });
}

// Splits into odd and even ranks, in reversed order, and uses these groups alternately with the
// group of all ranks; then splits off the even ranks only.
TEST_P(PairsCollectives, SplitGroupsAlternateWithTheGroupOfAllRanks) {
  test::on_group(GetParam(), [](Communicator& comm) {
    int me = comm.rank(), w = comm.size();
    std::unique_ptr<Communicator> half = comm.split(me % 2, -me, "halves");
    std::vector<int> members;
    for (int r = w - 1; r >= 0; --r) {
      if (r % 2 == me % 2) members.push_back(r);
    }
    ASSERT_EQ(half->size(), static_cast<int>(members.size()));
    ASSERT_EQ(members[static_cast<size_t>(half->rank())], me);
    for (size_t count : {size_t{3}, size_t{300000}}) {
      std::vector<int32_t> in(count * members.size(), me), out(in.size());
      half->all_gather(in.data(), out.data(), count * sizeof(int32_t), "g");
      for (size_t i = 0; i < out.size(); ++i) ASSERT_EQ(out[i], members[i / count]);
      int32_t sum = me, all = 0;
      comm.all_reduce(&sum, &all, 1, DS_DTYPE_I32, "all");
      ASSERT_EQ(all, w * (w - 1) / 2);
      half->all_reduce(&sum, &all, 1, DS_DTYPE_I32, "half", ReduceOp::max);
      ASSERT_EQ(all, members[0]);
    }
    std::unique_ptr<Communicator> even = comm.split(me % 2 == 0 ? 7 : -1, 0, "even");
    ASSERT_EQ(even == nullptr, me % 2 != 0);
    if (even) even->barrier("even");
    std::unique_ptr<Communicator> again = half->split(0, 0, "again");
    ASSERT_EQ(again->size(), half->size());
    again->barrier("nested");
    comm.barrier("end");
  });
}

class ThreeRanks : public testing::TestWithParam<test::GroupCase> {};

TEST_P(ThreeRanks, AnAbortEndsNestedGroups) {
  test::on_group(GetParam(), [](Communicator& comm) {
    std::unique_ptr<Communicator> group = comm.split(comm.rank() / 2, 0, "groups");
    std::unique_ptr<Communicator> within = group->split(0, 0, "groups of groups");
    comm.barrier("all are in");
    if (comm.rank() == 1) comm.abort("the disk is full");
    expect_names(message_of([&] {
                   if (comm.rank() == 0) within->barrier("without rank 1");
                   if (comm.rank() != 0) comm.barrier("without rank 0");
                 }),
                 {"the disk is full"});
  });
}

TEST_P(ThreeRanks, ARankThatLeavesItsGroupIsNamed) {
  // The groups of this transport share one link.
  if (GetParam().transport == "post") return;
  test::on_group(GetParam(), [](Communicator& comm) {
    std::unique_ptr<Communicator> group = comm.split(comm.rank() / 2, 0, "groups");
    if (comm.rank() == 1) group.reset();
    if (comm.rank() == 0) {
      expect_names(message_of([&] { group->barrier("pair"); }),
                   {"barrier 'pair'", "rank 1 has left"});
    }
    comm.barrier("the whole group goes on");
  });
}

INSTANTIATE_TEST_SUITE_P(Two, TwoRanks, testing::ValuesIn(test::group_cases(2)), test::group_name);
INSTANTIATE_TEST_SUITE_P(Three, ThreeRanks, testing::ValuesIn(test::group_cases(3)),
                         test::group_name);
INSTANTIATE_TEST_SUITE_P(All, PairsCollectives, testing::ValuesIn(test::group_cases()),
                         test::group_name);

}  // namespace
}  // namespace ds
