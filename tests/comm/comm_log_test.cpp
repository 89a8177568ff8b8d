#include "comm/comm_log.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "comm/groups.h"
#include "support/errors.h"
#include "support/groups.h"

// Timing of collectives: invented times test the arithmetic, real ones test what is included.
namespace ds {
namespace {

TEST(CommLogRows, BandwidthsFollowTheFormulasOfNcclTests) {
  struct Case {
    const char* operation;
    // The size that a caller passes and that ranks must agree on.
    uint64_t bytes;
    double message, share;
  };
  for (const Case& c : std::vector<Case>{{"all_reduce", 1000, 1000, 1.5},
                                         {"all_gather", 1000, 4000, 0.75},
                                         {"reduce_scatter", 1000, 4000, 0.75},
                                         {"all_gather_v", 1000, 1000, 0.75},
                                         {"all_to_all", 1000, 4000, 0.75},
                                         {"broadcast", 1000, 1000, 1},
                                         {"reduce", 1000, 1000, 1}}) {
    CommLog log("all", 4, {});
    log.add(c.operation, c.bytes, 77, 500);
    log.add(c.operation, c.bytes, 77, 1500);
    ASSERT_EQ(log.rows().size(), 1u);
    const CommTime& row = log.rows()[0];
    EXPECT_EQ(row.calls, 2);
    EXPECT_EQ(static_cast<double>(row.bytes), 2 * c.message) << c.operation;
    EXPECT_DOUBLE_EQ(algorithm_bandwidth(row), c.message * 1e9 / 1000) << c.operation;
    EXPECT_DOUBLE_EQ(bus_bandwidth(row), c.share * c.message * 1e9 / 1000) << c.operation;
  }
}

TEST(CommLogRows, SizesUpToAPowerOfTwoShareARowAndSoDoUnequalBlocks) {
  CommLog log("all", 2, {});
  for (uint64_t bytes : {1024, 1025, 2048}) log.add("all_reduce", bytes, 0, 1);
  log.add("all_to_all_v", 0, 300, 1);
  log.add("all_to_all_v", 0, 5, 1);
  ASSERT_EQ(log.rows().size(), 3u);
  EXPECT_EQ(log.rows()[0].size, 1024u);
  EXPECT_EQ(log.rows()[1].size, 2048u);
  EXPECT_EQ(log.rows()[1].bytes, 1025u + 2048u);
  EXPECT_EQ(log.rows()[2].size, 0u);
  EXPECT_EQ(log.rows()[2].bytes, 305u);
}

TEST(CommLogRows, WaitedTimeIsMeasuredFromTheFastestRankOfEachCall) {
  CommLog log("all", 2, {});
  for (int64_t ns : {100, 40, 60}) log.add("all_reduce", 8, 0, ns);
  // Only two ranks time a send, so its waiting time is not computed.
  log.add("send", 8, 0, 1000);
  EXPECT_EQ(log.times().size(), 3u);
  log.settle(std::vector<int64_t>{30, 40, 50});
  EXPECT_EQ(log.rows()[0].waited_ns, 80);
  EXPECT_TRUE(log.times().empty());
}

TEST(CommLogRows, OperationsAreChosenByOurNamesAndDeepSpeeds) {
  CommLog log("all", 2, std::vector<std::string>{"all_gather_into_tensor", "broadcast"});
  for (const char* name : {"all_gather", "broadcast", "all_reduce"}) log.add(name, 8, 0, 1);
  ASSERT_EQ(log.rows().size(), 2u);
  EXPECT_EQ(log.rows()[0].operation, "all_gather");
  std::string message = test::message_of(
      [] { CommLog("all", 2, std::vector<std::string>{"reduze"}); }, DS_ERROR_CONFIG);
  test::expect_names(message, {"comms_logger.prof_ops: 'reduze' is not one of", "reduce_scatter"});
}

class CommLogs : public testing::TestWithParam<test::GroupCase> {};

TEST_P(CommLogs, CountsAgreeWithTheLedger) {
  test::on_group(GetParam(), [](Communicator& comm) {
    auto ranks = static_cast<size_t>(comm.size());
    std::vector<float> in(64 * ranks), out(64 * ranks);
    comm.barrier("before");
    EXPECT_FALSE(comm.logging());
    test::message_of([&] { comm.times(); }, DS_ERROR_STATE);
    comm.start_log();
    auto before = comm.counts();
    // More calls than a batch, so that ranks exchange times in between.
    const size_t calls = CommLog::kBatch + 100;
    for (size_t i = 0; i < calls; ++i) comm.all_gather(in.data(), out.data(), i % 2 ? 256 : 4, "a");
    comm.all_reduce(in.data(), out.data(), 64, DS_DTYPE_F32, "b");
    auto after = comm.counts();
    std::vector<CommTime> rows = comm.times();
    EXPECT_EQ(comm.counts()["all_reduce"].calls, before["all_reduce"].calls + 1);
    ASSERT_EQ(rows.size(), 3u);
    EXPECT_EQ(rows[0].calls + rows[1].calls,
              after["all_gather"].calls - before["all_gather"].calls);
    // A rank receives (W - 1) / W of the messages.
    EXPECT_EQ(static_cast<int64_t>((rows[0].bytes + rows[1].bytes) / ranks * (ranks - 1)),
              after["all_gather"].bytes);
    EXPECT_EQ(rows[2].bytes, 256u);
    for (const CommTime& row : rows) {
      EXPECT_GT(row.ns, 0);
      EXPECT_GE(row.waited_ns, 0);
      EXPECT_LE(row.waited_ns, row.ns);
      EXPECT_TRUE(row.slowest >= 0 && row.slowest < comm.size());
    }
    // All ranks agree on the slowest rank, which is the one that waited least.
    std::vector<int64_t> waited(ranks);
    std::vector<int32_t> slowest(ranks);
    comm.all_gather(&rows[0].waited_ns, waited.data(), 8, "check");
    comm.all_gather(&rows[0].slowest, slowest.data(), 4, "check");
    for (int32_t r : slowest)
      EXPECT_EQ(r, std::min_element(waited.begin(), waited.end()) - waited.begin());
  });
}

TEST_P(CommLogs, GroupsHaveSeparateLogs) {
  test::on_group(GetParam(), [](Communicator& comm) {
    comm.start_log();
    CommGroups groups(comm);
    groups.add(1, 1);
    groups.of(1, 1).barrier("inner");
    comm.barrier("outer");
    std::vector<CommTime> rows = groups.times();
    auto calls = [&](int ranks) {
      return std::count_if(rows.begin(), rows.end(), [&](const CommTime& row) {
        return row.operation == "barrier" && row.ranks == ranks && row.calls == 1;
      });
    };
    EXPECT_EQ(calls(1), comm.size() == 1 ? 0 : 1);
    std::string text = comm_log_text(rows), csv = comm_log_csv(rows);
    EXPECT_EQ(std::count(csv.begin(), csv.end(), '\n'), static_cast<int64_t>(rows.size()) + 1);
    EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), static_cast<int64_t>(rows.size()) + 1);
  });
}

INSTANTIATE_TEST_SUITE_P(All, CommLogs, testing::ValuesIn(test::group_cases()), test::group_name);

}  // namespace
}  // namespace ds
