// Tests ranks with separate GPUs that a library links: what happens if a rank, its GPU or the
// library fails.
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "comm/communicator.h"
#include "core/base/error.h"
#include "core/base/trace.h"
#include "core/device/device.h"
#include "core/device/named_device.h"
#include "cuda/fake/fake_nccl.h"
#include "cuda/fake/group_rank.h"
#include "support/errors.h"
#include "support/fake_cuda.h"
#include "support/ranks.h"

namespace ds::test {
namespace {

constexpr Group::Op kCalls[] = {Group::Op::all_gather, Group::Op::reduce_scatter,
                                Group::Op::all_reduce, Group::Op::all_to_all};
constexpr const char* kNames[] = {"all_gather", "reduce_scatter", "all_reduce", "all_to_all"};
constexpr int64_t kElements = 60'000, kRoom = kElements * static_cast<int64_t>(sizeof(float));
constexpr int kRounds = 8;

class FakeLinks : public testing::Test {
 protected:
  void SetUp() override {
    if (!FakeCuda::find()) GTEST_SKIP() << "the plugin is not built";
    fake().fail("");
    fake().fail_links("");
    before_ = fake().live();
  }
  void TearDown() override {
    if (!FakeCuda::find()) return;
    fake().fail_links("");
    fake().jitter(0);
    EXPECT_EQ(fake().live(), before_) << "what was taken is given back";
    EXPECT_EQ(fake().link_counts().misuses, 0);
  }
  static const FakeCuda& fake() { return *FakeCuda::find(); }

 private:
  FakeCuda::Live before_;
};

// Makes a sequence of calls of all kinds and waits for them. `before` runs before each call.
void make_calls(GroupRank& rank, const std::function<void(int)>& before = {}) {
  for (int call = 0; call < kRounds; ++call) {
    if (before) before(call);
    rank.run(kCalls[call % 4], rank.arena->address(), rank.arena->address() + kRoom,
             call % 4 == 2 ? kElements : kElements / rank.comm.size(), DS_DTYPE_F32,
             "call " + std::to_string(call));
  }
  rank.finish();
}

// Returns each rank's error from its calls, or "". After an error, a rank ends its link and then
// its queue.
std::vector<std::string> errors_of(int world, const std::function<void(GroupRank&)>& body,
                                   int64_t timeout_ms = 60'000) {
  std::vector<std::string> texts(static_cast<size_t>(world));
  run_ranks(world, [&](Communicator& comm) {
    comm.set_timeout(timeout_ms);
    GroupRank rank(comm, 2 * kRoom, Gpus::own);
    try {
      body(rank);
    } catch (const std::exception& error) {
      texts[static_cast<size_t>(comm.rank())] = error.what();
      rank.give_up(error.what());
    }
  });
  return texts;
}

TEST_F(FakeLinks, ARanksGpuIsItsNumberModuloTheNumberOfGpus) {
  std::vector<std::string> names(7);
  run_ranks(7, [&](Communicator& comm) {
    names[static_cast<size_t>(comm.rank())] = make_device("cuda", false, comm.local_rank())->name();
  });
  constexpr int kGpus = FakeCuda::kGpus;
  for (int r = 0; r < 7; ++r)
    EXPECT_EQ(names[static_cast<size_t>(r)], "cuda:" + std::to_string(r % kGpus));
}

TEST_F(FakeLinks, GpusAreOpenedInParallel) {
  setenv("DS_FAKE_CUDA_OPEN_MS", "500", 1);
  const int64_t begin_ns = now_ns();
  run_ranks(4, [](Communicator& comm) { make_device("cuda:" + std::to_string(comm.rank())); });
  unsetenv("DS_FAKE_CUDA_OPEN_MS");
  EXPECT_LT(now_ns() - begin_ns, 1'500'000'000) << "in sequence they would take 2 s";
}

TEST_F(FakeLinks, RanksOnOneGpuAreRefused) {
  const std::string text = message_of([] {
    run_ranks(3, [](Communicator& comm) {
      const std::unique_ptr<Device> device = make_device(comm.rank() == 2 ? "cuda:1" : "cuda:0");
      CommGroups groups(comm);
      groups.link(*device);
    });
  });
  expect_names(
      text, {"in link 'all ranks'", "invalid usage", "Duplicate GPU detected : rank 0 and rank 1"});
}

TEST_F(FakeLinks, ARankThatDoesNotJoinIsNotWaitedForForever) {
  fake().fail_links("join:1");
  const std::string text = message_of([] {
    run_ranks(3, [](Communicator& comm) {
      comm.set_timeout(300);
      const std::unique_ptr<Device> device = make_device("cuda:" + std::to_string(comm.rank()));
      CommGroups groups(comm);
      groups.link(*device);
    });
  });
  expect_names(text, {"in link 'all ranks'", "has made no progress for 300 ms"});
}

// At some call on some rank, the library refuses the call, fails later, or never ends the stream.
// The rank that sees the error first names itself, the operation and the label. A stream that never
// ends is an error of the rank that waits for it.
TEST_F(FakeLinks, AnErrorOfTheLibraryEndsAllRanks) {
  constexpr int kWorld = 3;
  for (const char* kind : {"call", "async", "hang"}) {
    for (int call : {0, 1, 2, 3, 6}) {
      const int bad = call % kWorld;
      // An all_reduce consists of two calls of the library.
      const int number = call + (call > 2 ? 1 : 0) + (call > 6 ? 1 : 0) + 1;
      fake().fail_links(std::string(kind) + ":" + std::to_string(bad) + ":" +
                        std::to_string(number));
      const bool hangs = std::string(kind) == "hang";
      const std::vector<std::string> texts = errors_of(
          kWorld, [](GroupRank& rank) { make_calls(rank); }, hangs ? 300 : 60'000);
      const std::string what = std::string(kind) + " at call " + std::to_string(call);
      for (int r = 0; r < kWorld; ++r) {
        const std::string& text = texts[static_cast<size_t>(r)];
        EXPECT_NE(text, "") << what << ", rank " << r;
        EXPECT_NE(text.find(hangs ? "has made no progress for 300 ms"
                            : std::string(kind) == "async"
                                ? "remote process exited"
                                : "unhandled system error: this call was to fail"),
                  std::string::npos)
            << what << ", rank " << r << ": " << text;
        if (hangs || r == bad) continue;
        const std::string who = std::to_string(bad);
        expect_names(text, {"ended by rank " + who, "rank " + who + " in " + kNames[call % 4]});
      }
      EXPECT_EQ(fake().link_counts().aborts, kWorld) << what;
    }
  }
}

// A group of library calls must be ended even after an error, and the first error is reported.
TEST_F(FakeLinks, ARefusedPartEndsAllRanks) {
  for (const auto& [number, name] : {std::pair{2, "ncclRecv"}, {3, "ncclSend"}}) {
    fake().fail_links("part:1:" + std::to_string(number));
    const std::vector<std::string> texts = errors_of(3, [](GroupRank& rank) { make_calls(rank); });
    for (const std::string& text : texts)
      expect_names(text, {"its link: " + std::string(name) +
                          ": unhandled system error: this part was to fail"});
    EXPECT_EQ(fake().link_counts().misuses, 0);
  }
}

// After the last call, ranks no longer call the library, but wait for the queue.
TEST_F(FakeLinks, AnErrorAfterTheLastCallEndsAllRanks) {
  fake().fail_links("late:1:10");
  for (const std::string& text : errors_of(3, [](GroupRank& rank) { make_calls(rank); }))
    expect_names(text, {"rank 1 in all_to_all 'call 7'", "remote process exited"});
}

TEST_F(FakeLinks, UsingAnEndedLinkIsAnError) {
  run_ranks(2, [](Communicator& comm) {
    GroupRank rank(comm, 2 * kRoom, Gpus::own);
    comm.barrier("linked");
    rank.give_up("no more");
    expect_names(message_of([&] { rank.groups.link_of(comm)->settled(); }), {"the link has ended"});
  });
}

// The rank announces its end to the others only by its abort, and its streams hold work for them.
TEST_F(FakeLinks, ARankThatLeavesEndsTheOthers) {
  fake().jitter(2000);
  for (int last : {0, 3, 7}) {
    const std::vector<std::string> texts = errors_of(3, [&](GroupRank& rank) {
      make_calls(rank, [&](int call) {
        if (rank.comm.rank() == 2 && call == last) throw Error(DS_ERROR_IO, "the disk is full");
      });
    });
    for (int r : {0, 1})
      expect_names(texts[static_cast<size_t>(r)],
                   {"rank " + std::to_string(r) + " in " + kNames[last % 4],
                    "call " + std::to_string(last), "the disk is full"});
  }
}

// If ranks make different calls, they get an error before anything is enqueued.
TEST_F(FakeLinks, RanksThatDifferAreNamed) {
  const std::vector<std::string> texts = errors_of(2, [](GroupRank& rank) {
    const int64_t count = rank.comm.rank() == 0 ? 8 : 9;
    rank.run(Group::Op::all_gather, rank.arena->address(), rank.arena->address() + kRoom, count,
             DS_DTYPE_F32, "wte");
    rank.finish();
  });
  for (const std::string& text : texts) expect_names(text, {"all_gather 'wte'", "32", "36"});
  EXPECT_EQ(fake().link_counts().calls, 0);
}

TEST_F(FakeLinks, ALostGpuEndsAllRanks) {
  int64_t submitted = 0;
  errors_of(2, [&](GroupRank& rank) {
    make_calls(rank);
    rank.comm.barrier("all");
    if (rank.comm.rank() == 0) submitted = fake().counts().calls;
  });
  for (int64_t part = 1; part < 8; ++part) {
    fake().fail("lost:" + std::to_string(submitted * part / 8));
    std::vector<std::string> texts;
    try {
      texts = errors_of(2, [](GroupRank& rank) { make_calls(rank); });
      // The device failed while it was being opened.
    } catch (const Error& error) {
      texts = {error.what()};
    }
    for (const std::string& text : texts) expect_names(text, {"the device is unavailable"});
    fake().fail("");
  }
}

// Links of all ranks and of subsets are tested as an engine tests them: they must transfer the
// right bytes, and each must have its buffers afterwards.
TEST_F(FakeLinks, LinksAreTestedBeforeTheyAreUsed) {
  for (int world : {2, 3, 4}) {
    run_ranks(world, [&](Communicator& comm) {
      GroupRank rank(comm, 2 * kRoom, Gpus::own);
      if (world == 4) rank.groups.add(2, 2);
      const int64_t free = *rank.device->free_memory(), links = world == 4 ? 2 : 1;
      rank.groups.try_links(*rank.device, *rank.queue);
      EXPECT_EQ(free - *rank.device->free_memory(), links * kFakeNcclBytes);
    });
  }
}

TEST_F(FakeLinks, ALinkThatTransfersWrongBytesIsRefused) {
  for (const char* injected : {"wrong:1:1", "wrong:0:2"}) {
    fake().fail_links(injected);
    const std::vector<std::string> texts = errors_of(3, [](GroupRank& rank) {
      rank.groups.try_links(*rank.device, *rank.queue);
      rank.comm.barrier("tried");
    });
    const std::string bad(1, injected[6]);
    for (const std::string& text : texts)
      expect_names(text, {"try link 'all ranks'",
                          "of 3 sent to rank " + bad + " were altered in transit", "NCCL 2.28.9"});
  }
}

TEST_F(FakeLinks, ALinkThatFailsItsTestEndsAllRanks) {
  for (const char* kind : {"call", "async", "hang"}) {
    for (int call : {1, 2}) {
      fake().fail_links(std::string(kind) + ":1:" + std::to_string(call));
      const bool hangs = std::string(kind) == "hang";
      const std::vector<std::string> texts = errors_of(
          3, [](GroupRank& rank) { rank.groups.try_links(*rank.device, *rank.queue); },
          hangs ? 300 : 60'000);
      for (const std::string& text : texts)
        expect_names(text, {hangs ? "has made no progress for 300 ms" : "rank 1"});
      EXPECT_EQ(fake().link_counts().aborts, 3) << kind << " at " << call;
    }
  }
}

// A group of some of the ranks has a separate link.
TEST_F(FakeLinks, SubsetsOfRanksHaveSeparateLinks) {
  run_ranks(4, [](Communicator& comm) {
    GroupRank rank(comm, 2 * kRoom, Gpus::own);
    rank.groups.add(2, 1);
    rank.groups.add(2, 2);
    for (int stride : {1, 2}) {
      Communicator& part = rank.groups.of(2, stride);
      const auto first = static_cast<float>(comm.rank());
      const int peer = comm.rank() ^ stride;
      rank.device->copy(rank.arena->address(), &first, sizeof first);
      auto group = make_group(part, *rank.device, *rank.queue, rank.groups.link_of(part), 1);
      group->run(*rank.queue, Group::Op::all_gather, rank.arena->address(),
                 rank.arena->address() + kRoom, 1, DS_DTYPE_F32, nullptr, "part");
      rank.finish();
      float got[2] = {};
      rank.device->copy(got, rank.arena->address() + kRoom, sizeof got);
      EXPECT_EQ(got[part.rank()], static_cast<float>(comm.rank()));
      EXPECT_EQ(got[1 - part.rank()], static_cast<float>(peer));
    }
  });
  EXPECT_EQ(fake().link_counts().calls, 8);
}

}  // namespace
}  // namespace ds::test
