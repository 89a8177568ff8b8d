#include <gtest/gtest.h>

#include <algorithm>

#include "core/base/error.h"
#include "support/rank_programs.h"
#include "support/ranks.h"
#include "support/temp_folder.h"

// Compares random programs on the chaos device with interpret(), which has no queues and no shared
// memory. With every wait in place the results must be equal; without one of the waits they should
// differ under some seed.
namespace ds::test {
namespace {

constexpr uint64_t kPrograms = 30, kSeeds = 8;
// Indexed as [rank][buffer].
using Contents = std::vector<std::vector<Bytes>>;

// Returns the number of seeds under which a persistent buffer of any rank differs from `expected`;
// with `quick`, stops counting at the first.
int differing(const std::vector<Program>& ranks, const Contents& expected, RankRoom* rooms,
              bool quick) {
  std::vector<int> differ(ranks.size() * kSeeds, 0);
  run_ranks(static_cast<int>(ranks.size()), [&](Communicator& comm) {
    size_t r = static_cast<size_t>(comm.rank());
    for (uint64_t seed = 0; seed < kSeeds; ++seed) {
      bool same = run_program(ranks[r], comm, rooms[r], {.chaos = seed + 1}) == expected[r];
      float mine = same ? 0 : 1, any = 0;
      comm.all_reduce(&mine, &any, 1, DS_DTYPE_F32, "compare");
      differ[r * kSeeds + seed] = any > 0;
      if (quick && any > 0) break;
    }
  });
  return static_cast<int>(std::count(differ.begin(), differ.begin() + kSeeds, 1));
}

TEST(Chaos, RandomProgramsKeepTheirBytes) {
  TempFolder folder;
  RankRoom rooms[2]{RankRoom(folder.path()), RankRoom(folder.path())};
  int used[kQueues] = {}, waits = 0;
  for (uint64_t seed = 0; seed < kPrograms; ++seed) {
    std::vector<Program> ranks = placed_programs(seed);
    for (const Instr& in : ranks[0].instrs) {
      ++used[static_cast<int>(in.queue)];
      waits += static_cast<int>(in.waits.size());
    }
    Contents expected = interpret(ranks, kProgramRuns), in_order(ranks.size());
    run_ranks(world_of(seed), [&](Communicator& comm) {
      size_t r = static_cast<size_t>(comm.rank());
      verify(ranks[r], {});
      in_order[r] = run_program(ranks[r], comm, rooms[r], {});
    });
    EXPECT_TRUE(in_order == expected) << "seed " << seed << "\n" << ranks[0].print();
    EXPECT_EQ(differing(ranks, expected, rooms, false), 0) << "seed " << seed;
  }
  for (int q = 0; q < kQueues; ++q) EXPECT_GT(used[q], 60) << queue_name(static_cast<Queue>(q));
  EXPECT_GT(waits, 1000);
}

// insert_waits leaves no wait that another one implies, so the verifier refuses each program
// without one. The chaos device detects a missing wait only if wrong bytes survive to the end of
// the run. Of every fourth wait, it must detect more than 92 % within 8 seeds.
TEST(Chaos, ADroppedWaitIsDetected) {
  TempFolder folder;
  RankRoom rooms[2]{RankRoom(folder.path()), RankRoom(folder.path())};
  int dropped = 0, refused = 0, tried = 0, caught = 0;
  for (uint64_t seed = 0; seed < kPrograms; ++seed) {
    std::vector<Program> ranks = placed_programs(seed);
    Contents expected = interpret(ranks, kProgramRuns);
    for (size_t i = 0; i < ranks[0].instrs.size(); ++i) {
      for (size_t w = 0; w < ranks[0].instrs[i].waits.size(); ++w) {
        std::vector<Program> broken = ranks;
        for (Program& p : broken) {
          auto& waits = p.instrs[i].waits;
          waits.erase(waits.begin() + static_cast<std::ptrdiff_t>(w));
        }
        try {
          verify(broken[0], {});
        } catch (const Error&) {
          ++refused;
        }
        if (dropped++ % 4 != 0) continue;
        ++tried;
        caught += differing(broken, expected, rooms, true) > 0;
      }
    }
  }
  EXPECT_EQ(refused, dropped);
  EXPECT_GT(tried, 300);
  EXPECT_GT(caught * 100, tried * 92) << caught << " of " << tried;
}

}  // namespace
}  // namespace ds::test
