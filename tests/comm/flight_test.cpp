#include "comm/flight.h"

#include <fmt/core.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "comm/communicator.h"
#include "support/errors.h"
#include "support/spawn.h"
#include "support/temp_folder.h"

// Tests the record of its last operations that a failing rank leaves.
namespace ds {
namespace {

using test::expect_names;

std::string read(const std::string& path) {
  std::ifstream in(path);
  return {std::istreambuf_iterator<char>(in), {}};
}

// Returns the lines of a record without its two header lines.
std::vector<std::string> lines(const std::string& text) {
  std::vector<std::string> out;
  for (size_t at = 0; at < text.size();) {
    size_t end = text.find('\n', at);
    out.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  EXPECT_GE(out.size(), 2u) << text;
  out.erase(out.begin(), out.begin() + 2);
  return out;
}

class Flight : public testing::Test {
 protected:
  test::TempFolder folder_;
  std::string file(int rank) const {
    return fmt::format("{}/flight/rank_{}.txt", folder_.path(), rank);
  }
};

TEST_F(Flight, DivergingRanksBothLeaveARecord) {
  std::string url = fmt::format("threads://flight-{}", getpid());
  test::spawn_threads(2, [&](int rank) {
    auto comm = create_communicator(url, {.rank = rank, .size = 2});
    comm->flight().set_folder(folder_.path() + "/flight");
    std::vector<float> data(16), all(32);
    comm->all_reduce(data.data(), data.data(), 16, DS_DTYPE_F32, "good", ReduceOp::mean);
    EXPECT_FALSE(std::filesystem::exists(file(rank)));
    test::message_of([&] {
      if (rank == 0) comm->all_gather(data.data(), all.data(), 64, "gather h.3");
      if (rank == 1) comm->broadcast(data.data(), 64, 0, "gather h.4");
    });
  });
  for (int rank : {0, 1}) {
    std::string text = read(file(rank));
    expect_names(text,
                 {fmt::format("rank {} of 2: the last 2 of 2 operations", rank), "ranks differ"});
    std::vector<std::string> rows = lines(text);
    ASSERT_EQ(rows.size(), 2u);
    expect_names(rows[0], {"all", " 0  ", "done", "all_reduce", "64", "'good' f32 mean"});
    expect_names(rows[1], {" 1  ", "failed", rank == 0 ? "all_gather" : "broadcast",
                           rank == 0 ? "'gather h.3'" : "'gather h.4' from 0"});
  }
}

TEST_F(Flight, TheSurvivorsOfADeathLeaveARecord) {
  std::string url = fmt::format("shm://flight-{}", getpid());
  ASSERT_EQ(setenv("DS_FLIGHT_DIR", (folder_.path() + "/flight").c_str(), 1), 0);
  std::vector<int> codes = test::spawn_processes(3, [&](int rank) {
    auto comm = create_communicator(url, {.rank = rank, .size = 3});
    auto group = comm->split(rank == 2 ? 1 : 0, 0, "pair");
    comm->barrier("step 1");
    if (rank == 1) kill(getpid(), SIGKILL);
    if (rank == 0) test::message_of([&] { group->barrier("inner"); });
    test::message_of([&] { comm->barrier("step 2"); });
  });
  ASSERT_EQ(unsetenv("DS_FLIGHT_DIR"), 0);
  EXPECT_EQ(codes, (std::vector<int>{0, 137, 0}));
  EXPECT_FALSE(std::filesystem::exists(file(1)));
  expect_names(read(file(0)), {"rank 1 is dead"});
  expect_names(lines(read(file(0))).back(), {"pair 0", "failed", "barrier", "'inner'"});
  expect_names(lines(read(file(2))).back(), {"all", "failed", "barrier", "'step 2'"});
}

TEST_F(Flight, AnAbortLeavesARecordToo) {
  auto comm = create_communicator("self", {});
  comm->flight().set_folder(folder_.path() + "/flight");
  comm->barrier("last");
  comm->abort("the disk is full");
  expect_names(read(file(0)), {"ended by: the disk is full", "'last'"});
}

TEST_F(Flight, KeepsTheLastOperationsAndShowsRunningOnes) {
  FlightRecord record(1, 4);
  Intent intent;
  uint64_t first = 0;
  for (uint64_t i = 0; i < 100; ++i) {
    intent.set(i, "send", "1 to 2", i, fmt::format("label {}", i));
    uint64_t number = record.start("all", i % 2 ? "send" : "receive", intent);
    if (i == 0) first = number;
    if (i > 0 && i < 99) record.end(number, true);
  }
  // The record no longer contains this operation: a later one has taken its slot.
  record.end(first, false);
  std::vector<std::string> rows = lines(record.text());
  ASSERT_EQ(rows.size(), FlightRecord::kKept);
  expect_names(rows.front(), {"receive", "'label 36' 1 to 2", "done"});
  expect_names(rows.back(), {"'label 99'", "running"});
}

TEST_F(Flight, OtherThreadsMayReadAtAnyTime) {
  std::string url = fmt::format("threads://flight-look-{}", getpid());
  test::spawn_threads(2, [&](int rank) {
    auto comm = create_communicator(url, {.rank = rank, .size = 2});
    std::thread other([&] {
      for (int i = 0; i < 50; ++i) lines(comm->flight().text());
    });
    for (int i = 0; i < 500; ++i) comm->barrier("busy");
    other.join();
  });
}

// At most forks another thread holds the lock of the record.
TEST_F(Flight, AForkedChildDoesNotWaitForALock) {
  FlightRecord record(0, 1);
  std::atomic<bool> stop{false};
  std::thread busy([&] {
    while (!stop) record.end(record.start("", "barrier", Intent()), true);
  });
  for (int i = 0; i < 50; ++i) {
    const pid_t child = fork();
    if (child == 0) {
      alarm(20);
      record.end(record.start("", "barrier", Intent()), false);
      _exit(7);
    }
    int status = 0;
    waitpid(child, &status, 0);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 7);
    if (HasFailure()) break;
  }
  stop = true;
  busy.join();
}

}  // namespace
}  // namespace ds
