#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <memory>

#include "core/base/error.h"
#include "core/device/host_device.h"
#include "core/device/separate_device.h"
#include "support/errors.h"
#include "support/rank_programs.h"
#include "support/ranks.h"
#include "support/temp_folder.h"

// Runs random programs on the executor with one thread for each queue.
namespace ds::test {
namespace {

// Indexed as [rank][buffer].
using Contents = std::vector<std::vector<Bytes>>;

struct Case {
  const char* name;
  std::function<std::unique_ptr<Device>(uint64_t seed)> make;
  bool comm_thread = false;
};

class Queues : public testing::TestWithParam<Case> {
 protected:
  TempFolder folder_;
  RankRoom rooms_[2]{RankRoom(folder_.path()), RankRoom(folder_.path())};
};
const Case kCases[] = {
    {"separate", [](uint64_t) { return std::make_unique<SeparateDevice>(); }},
    {"jitter",
     [](uint64_t seed) { return std::make_unique<SeparateDevice>(Delays{.jitter = seed}); }},
    {"comm_thread", [](uint64_t) { return std::make_unique<HostDevice>(); }, true},
};
INSTANTIATE_TEST_SUITE_P(All, Queues, testing::ValuesIn(kCases),
                         [](const auto& info) { return std::string(info.param.name); });

TEST_P(Queues, RandomProgramsKeepTheirBytes) {
  for (uint64_t seed = 0; seed < 24; ++seed) {
    std::vector<Program> ranks = placed_programs(seed);
    Contents expected = interpret(ranks, kProgramRuns), got(ranks.size());
    run_ranks(world_of(seed), [&](Communicator& comm) {
      size_t r = static_cast<size_t>(comm.rank());
      std::unique_ptr<Device> device = GetParam().make(seed + 1);
      got[r] = run_program(ranks[r], comm, rooms_[r],
                           {.device = device.get(), .comm_thread = GetParam().comm_thread});
    });
    EXPECT_TRUE(got == expected) << "seed " << seed << "\n" << ranks[0].print();
  }
}

std::atomic<int> calls_left{0};

void breaks_once(const KernelContext& c) {
  if (calls_left.fetch_sub(1) == 1) raise(DS_ERROR_NUMERIC, "this kernel breaks");
  tag_kernels().all()[0].run(c);
}

// The first error ends the run. The message names the failing instruction, on the rank where it
// failed. The other ranks stop at once and wait in no collective.
TEST_P(Queues, AnErrorEndsTheRunOfAllRanks) {
  for (int at : {1, 17, 60}) {
    std::vector<Program> ranks = placed_programs(3);
    ASSERT_EQ(ranks.size(), 2u);
    calls_left = at;
    // The message of the rank that failed.
    std::string cause;
    TempFolder folder;
    RankRoom rooms[2]{RankRoom(folder.path()), RankRoom(folder.path())};
    std::atomic<int> numeric{0};
    try {
      run_ranks(2, [&](Communicator& comm) {
        size_t r = static_cast<size_t>(comm.rank());
        std::unique_ptr<Device> device = GetParam().make(7);
        rooms[r].kernels = KernelRegistry();
        rooms[r].kernels.add({"tag", "breaks", breaks_once});
        try {
          run_program(ranks[r], comm, rooms[r],
                      {.device = device.get(), .comm_thread = GetParam().comm_thread});
        } catch (const Error& error) {
          if (error.status() == DS_ERROR_NUMERIC) {
            ++numeric;
            cause = error.what();
          } else {
            EXPECT_EQ(error.status(), DS_ERROR_COMM) << error.what();
          }
          throw;
        }
      });
      FAIL() << "no error";
    } catch (const Error&) {
    }
    EXPECT_EQ(numeric.load(), 1);
    expect_names(cause, {"instruction", "(tag ", "): this kernel breaks"});
    EXPECT_EQ(cause.find("rank"), 0u) << cause;
    // The prefix was added only once.
    EXPECT_EQ(cause.find("rank", 1), std::string::npos) << cause;
  }
}

}  // namespace
}  // namespace ds::test
