#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "comm/communicator.h"
#include "support/groups.h"

// More ranks than a machine has cores, and than one had room for once: every shape of collective, with blocks
// of unequal sizes, among them empty ones.
namespace ds {
namespace {

class Many : public testing::TestWithParam<test::GroupCase> {};

TEST_P(Many, CollectivesGiveEveryRankItsOwn) {
  test::on_group(GetParam(), [](Communicator& comm) {
    const auto w = static_cast<size_t>(comm.size()), me = static_cast<size_t>(comm.rank());
    auto count_of = [](size_t r) { return r % 5; };
    std::vector<size_t> counts, bytes;
    size_t total = 0;
    for (size_t r = 0; r < w; ++r) {
      counts.push_back(count_of(r));
      bytes.push_back(count_of(r) * sizeof(int64_t));
      total += count_of(r);
    }
    auto value = [](size_t from, size_t to, size_t i) {
      return static_cast<int64_t>(from * 1000003 + to * 1009 + i);
    };

    std::vector<int64_t> own(count_of(me)), all(total, -1);
    for (size_t i = 0; i < own.size(); ++i) own[i] = value(me, 0, i);
    comm.all_gather_v(own.data(), all.data(), bytes, "blocks");
    for (size_t r = 0, at = 0; r < w; ++r) {
      for (size_t i = 0; i < count_of(r); ++i) ASSERT_EQ(all[at++], value(r, 0, i));
    }

    std::vector<int64_t> sends(total), sum(count_of(me));
    for (size_t r = 0, at = 0; r < w; ++r) {
      for (size_t i = 0; i < count_of(r); ++i) sends[at++] = value(me, r, i);
    }
    comm.reduce_scatter_v(sends.data(), sum.data(), counts, DS_DTYPE_I64, "sums");
    for (size_t i = 0; i < sum.size(); ++i) {
      int64_t expected = 0;
      for (size_t r = 0; r < w; ++r) expected += value(r, me, i);
      ASSERT_EQ(sum[i], expected);
    }

    std::vector<int64_t> out(w), in(w), got(w);
    for (size_t r = 0; r < w; ++r) out[r] = value(me, r, 0);
    comm.all_to_all(out.data(), in.data(), sizeof(int64_t), "each");
    for (size_t r = 0; r < w; ++r) ASSERT_EQ(in[r], value(r, me, 0));
    comm.all_reduce(out.data(), got.data(), w, DS_DTYPE_I64, "all");
    for (size_t i = 0; i < w; ++i) {
      int64_t expected = 0;
      for (size_t r = 0; r < w; ++r) expected += value(r, i, 0);
      ASSERT_EQ(got[i], expected);
    }

    // The last rank gives to all, and neighbours meet.
    int64_t word = value(me, 7, 7);
    comm.broadcast(&word, sizeof word, comm.size() - 1, "one");
    ASSERT_EQ(word, value(w - 1, 7, 7));
    if (me + 1 < w && me % 2 == 0) comm.send(out.data(), sizeof(int64_t), comm.rank() + 1, "pair");
    if (me % 2 == 1) {
      comm.receive(&word, sizeof word, comm.rank() - 1, "pair");
      ASSERT_EQ(word, value(me - 1, 0, 0));
    }
  });
}

INSTANTIATE_TEST_SUITE_P(All, Many,
                         testing::Values(test::GroupCase{"threads", 130},
                                         test::GroupCase{"threads", 67, false}, test::GroupCase{"shm", 96},
                                         test::GroupCase{"post", 32}),
                         test::group_name);

}  // namespace
}  // namespace ds
