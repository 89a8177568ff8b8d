#include <fmt/core.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <vector>

#include "comm/comm_thread.h"
#include "comm/communicator.h"
#include "comm/flight.h"
#include "core/base/error.h"
#include "support/errors.h"
#include "support/groups.h"
#include "support/spawn.h"

// Collectives that run while their caller does something else.
namespace ds {
namespace {

using test::expect_names;
using test::message_of;
using Op = CommRequest::Op;

class Started : public testing::TestWithParam<test::GroupCase> {};

TEST_P(Started, EveryOperationHasTheBitsOfItsCall) {
  test::on_group(GetParam(), [](Communicator& comm) {
    auto ranks = static_cast<size_t>(comm.size());
    const size_t count = 200003;
    std::vector<std::byte> in = test::elements(DS_DTYPE_BF16, comm.rank(), count * ranks);
    for (Op op :
         {Op::all_reduce, Op::all_gather, Op::reduce_scatter, Op::all_to_all, Op::broadcast}) {
      std::vector<std::byte> expected(count * ranks * 4), out(expected.size());
      if (op == Op::broadcast && comm.rank() == 0)
        out = expected = test::elements(DS_DTYPE_U8, 9, out.size());
      switch (op) {
        case Op::all_reduce:
          comm.all_reduce(in.data(), expected.data(), count, DS_DTYPE_BF16, "x", ReduceOp::mean);
          break;
        case Op::all_gather:
          comm.all_gather(in.data(), expected.data(), count * 2, "x");
          break;
        case Op::reduce_scatter:
          comm.reduce_scatter(in.data(), expected.data(), count, DS_DTYPE_BF16, "x",
                              ReduceOp::mean);
          break;
        case Op::all_to_all:
          comm.all_to_all(in.data(), expected.data(), count * 2, "x");
          break;
        default:
          comm.broadcast(expected.data(), count * 2, 0, "x");
      }
      CommRequest request{op, DS_DTYPE_BF16, ReduceOp::mean, 0, {in.data()}, {out.data()}, {count}};
      std::shared_ptr<Work> work = comm.start(request, "y");
      work->wait();
      // wait() may be called repeatedly.
      work->wait();
      EXPECT_TRUE(work->done());
      ASSERT_TRUE(out == expected) << static_cast<int>(op);
    }
  });
}

TEST_P(Started, CollectivesRunInTheOrderOfTheCalls) {
  test::on_group(GetParam(), [](Communicator& comm) {
    auto group = comm.split(0, 0, "same");
    std::vector<float> data(1000, 1.f);
    auto ranks = static_cast<float>(comm.size());
    float expected = 1;
    for (int i = 0; i < 20; ++i) {
      CommRequest request{.in = {data.data()}, .out = {data.data()}, .counts = {data.size()}};
      // A group of one rank also runs its collectives in the order of the calls.
      Communicator& first = i % 3 == 0 ? *group : comm;
      first.start(request, "started");
      first.start(request, "again");
      Communicator& other = i % 2 == 0 ? *group : comm;
      other.all_reduce(data.data(), data.data(), data.size(), DS_DTYPE_F32, "called",
                       ReduceOp::mean);
      ASSERT_EQ(data[999], expected = expected * ranks * ranks) << i;
      if (expected > 1e6f) std::fill(data.begin(), data.end(), expected = 1.f);
    }
    EXPECT_EQ(comm.counts()["all_reduce"].calls + group->counts()["all_reduce"].calls, 60);
  });
}

TEST_P(Started, ARefusedCallLeavesTheGroupUsable) {
  test::on_group(GetParam(), [](Communicator& comm) {
    CommRequest request{Op::all_reduce, DS_DTYPE_I32, ReduceOp::mean, 0, {nullptr}, {nullptr}, {4}};
    message_of([&] { comm.start(request, "x"); }, DS_ERROR_INVALID_ARGUMENT);
    request = {Op::broadcast, DS_DTYPE_U8, ReduceOp::sum, comm.size(), {nullptr}, {nullptr}, {0}};
    message_of([&] { comm.start(request, "x"); }, DS_ERROR_INVALID_ARGUMENT);
    comm.barrier("usable");
  });
}

TEST(StartedEnds, ADivergenceFailsItsWorkAndAllLaterOnes) {
  std::string url = fmt::format("threads://started-{}", getpid());
  test::spawn_threads(2, [&](int rank) {
    auto comm = create_communicator(url, {.rank = rank, .size = 2});
    std::vector<float> data(8);
    CommRequest request{.op = rank == 0 ? Op::all_reduce : Op::broadcast,
                        .in = {data.data()},
                        .out = {data.data()},
                        .counts = {8}};
    auto bad = comm->start(request, "h.3");
    auto later = comm->start({Op::barrier}, "later");
    expect_names(message_of([&] { bad->wait(); }), {"ranks differ", "'h.3'"});
    message_of([&] { later->wait(); });
    message_of([&] { comm->barrier("called"); });
    expect_names(comm->flight().text(), {"failed"});
  });
}

// A group that ends cancels its unfinished collectives; no rank hangs.
TEST(StartedEnds, AGroupThatEndsCancelsItsStartedWork) {
  std::string url = fmt::format("threads://unfinished-{}", getpid());
  test::spawn_threads(2, [&](int rank) {
    auto comm = create_communicator(url, {.rank = rank, .size = 2});
    comm->barrier("both are here");
    if (rank == 1) {
      message_of([&] { comm->barrier("never met"); });
      return;
    }
    auto running = comm->start({Op::barrier}, "other label");
    auto queued = comm->start({Op::barrier}, "queued");
    comm.reset();
    EXPECT_TRUE(running->done() && queued->done());
    message_of([&] { running->wait(); });
    message_of([&] { queued->wait(); });
  });
}

TEST(StartedEnds, DroppedWorkStillCompletes) {
  std::string url = fmt::format("threads://nobody-{}", getpid());
  test::spawn_threads(2, [&](int rank) {
    auto comm = create_communicator(url, {.rank = rank, .size = 2});
    float data[4] = {1, 2, 3, 4};
    for (int i = 0; i < 10; ++i)
      comm->start({.in = {data}, .out = {data}, .counts = {4}}, "dropped");
    comm->barrier("comes after them");
    EXPECT_EQ(data[0], 1024.f);
    auto group = comm->split(0, 0, "part");
    auto last = group->start({Op::barrier}, "of the part");
    // `group` still uses the thread that runs started collectives.
    comm.reset();
    last->wait();
  });
}

TEST(StartedEnds, AForkedChildCannotUseTheGroup) {
  std::string url = fmt::format("shm://started-fork-{}", getpid());
  std::vector<int> codes = test::spawn_processes(2, [&](int rank) {
    auto comm = create_communicator(url, {.rank = rank, .size = 2});
    std::shared_ptr<Work> work = comm->start({Op::barrier}, rank == 0 ? "held up" : "held up");
    if (rank == 0) work->wait();
    pid_t child = fork();
    if (child == 0) {
      // Locks that another thread held at the fork are never released here.
      alarm(60);
      message_of([&] { comm->start({Op::barrier}, "child"); }, DS_ERROR_STATE);
      message_of([&] { comm->barrier("child"); }, DS_ERROR_STATE);
      comm.reset();
      _exit(testing::Test::HasFailure() ? 1 : 7);
    }
    int status = 0;
    waitpid(child, &status, 0);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 7);
    work->wait();
    comm->barrier("still whole");
  });
  EXPECT_EQ(codes, (std::vector<int>{0, 0}));
}

INSTANTIATE_TEST_SUITE_P(All, Started, testing::ValuesIn(test::group_cases()), test::group_name);

}  // namespace
}  // namespace ds
