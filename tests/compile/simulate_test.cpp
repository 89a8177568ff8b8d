#include "compile/simulate.h"

#include <gtest/gtest.h>

#include "compile/pipeline.h"
#include "core/base/error.h"
#include "support/dice.h"
#include "support/errors.h"
#include "support/same_bits.h"

namespace ds::test {
namespace {

std::vector<Program> steps_of(const Point& p) {
  std::vector<Program> ranks;
  for (int r = 0; r < p.world; ++r)
    ranks.push_back(compile_plan(graph_of(p), config_of(p), r, p.world, Machine{}).step());
  return ranks;
}

// Returns why the programs are refused, or "".
std::string refusal(const std::vector<Program>& programs) {
  std::vector<const Program*> ranks;
  for (const Program& p : programs) ranks.push_back(&p);
  try {
    simulate(ranks);
    return "";
  } catch (const Error& error) {
    EXPECT_EQ(error.status(), DS_ERROR_INTERNAL);
    return error.what();
  }
}

std::vector<InstrId> collectives(const Program& p) {
  std::vector<InstrId> out;
  for (InstrId i : p.instrs.ids()) {
    if (p.instrs[i].queue == Queue::comm) out.push_back(i);
  }
  return out;
}

std::vector<Point> points() {
  std::vector<Point> out;
  for (int stage = 0; stage <= 3; ++stage) {
    for (int64_t micros : {2, 40}) {
      Point p;
      p.stage = stage;
      p.world = 4;
      p.leaves = 4 * micros;
      out.push_back(p);
      if (stage == 3) {
        p.nodes = p.mics = 2;
        p.tier = Tier::host;
        out.push_back(p);
      }
    }
  }
  return out;
}

// A collective that one rank omits, or calls later than another rank, is refused before anything
// can wait for it. The message names each rank and how far it has got.
TEST(Simulate, DroppedAndSwappedCollectivesAreRefused) {
  int swapped = 0, dropped = 0;
  for (const Point& p : points()) {
    std::vector<Program> right = steps_of(p);
    ASSERT_EQ(refusal(right), "") << p.name();
    Dice dice(static_cast<uint64_t>(p.stage) + static_cast<uint64_t>(p.leaves), 1);
    std::vector<InstrId> calls = collectives(right[0]);
    for (int n = 0; n < 12; ++n) {
      auto rank = static_cast<size_t>(dice.below(4)),
           k = static_cast<size_t>(dice.below(std::ssize(calls) - 1));
      std::vector<Program> broken = right;
      broken[rank].instrs[calls[k]].queue = Queue::copy;  // not a collective any more
      std::string message = refusal(broken);
      EXPECT_NE(message.find("the collectives of program step do not fit together"),
                std::string::npos)
          << message;
      for (int r = 0; r < 4; ++r)
        EXPECT_NE(message.find(fmt::format("rank {} ", r)), std::string::npos) << message;
      ++dropped;
      broken = right;
      std::swap(broken[rank].instrs[calls[k]], broken[rank].instrs[calls[k + 1]]);
      // Calls of two different groups may be swapped; then all ranks may reach their end.
      bool one = right[0].instrs[calls[k]].group == right[0].instrs[calls[k + 1]].group;
      std::string met = refusal(broken);
      EXPECT_TRUE(!one || !met.empty()) << "their places in the order tell them apart";
      swapped += one;
    }
  }
  EXPECT_GT(dropped, 100);
  EXPECT_GT(swapped, 60);
}

TEST(Simulate, DifferentBytesTypesRoundsAndGroupsAreRefused) {
  Point p = points()[1];
  std::vector<Program> right = steps_of(p);
  ASSERT_GT(right[0].repeat.rounds, 1);
  InstrId call = collectives(right[0])[0];
  std::vector<Program> broken = right;
  broken[2].instrs[call].operands[0].type.dtype = DS_DTYPE_F64;
  EXPECT_NE(refusal(broken).find("the calls that meet differ"), std::string::npos);
  broken = right;
  ++broken[3].repeat.rounds;
  EXPECT_NE(refusal(broken).find("in round 0 of"), std::string::npos) << refusal(broken);
  broken = right;
  broken[1].instrs[call].group = {2, 1};
  EXPECT_NE(refusal(broken).find("ranks wait forever"), std::string::npos);
  broken = right;
  broken[1].instrs[call].group = {3, 1};
  EXPECT_NE(refusal(broken).find("4 ranks have no groups 3x1"), std::string::npos);
}

}  // namespace
}  // namespace ds::test
