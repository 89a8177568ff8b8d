// Tests states on files: the bytes that a step transfers, and the work that hides the transfers.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "compile/pipeline.h"
#include "core/base/error.h"
#include "support/models.h"

namespace ds {
namespace {

using test::make_config;
using test::make_mlp;

// kPart is the number of elements of a layer that one of two ranks updates.
constexpr int64_t kWidth = 128, kLayers = 6, kPart = kWidth * kWidth / 2;

Config files(int64_t accumulation, int buffers) {
  Config c = make_config(3, accumulation, 2);
  c.zero.param_persistence_threshold = 1000;
  c.zero.optimizer_tier = Tier::nvme;
  c.zero.sub_group_size = kPart;
  c.zero.buffer_count = buffers;
  return c;
}

Plan compile(const Config& c) {
  return compile_plan(make_mlp(kLayers, kWidth, 16), c, 0, 2, Machine{});
}

const std::string& touched(const Program& p, const Instr& in) {
  return p.buffers[in.operands[in.queue == Queue::write ? 1 : 0].buffer].name;
}

int64_t count(const Program& p, const std::string& op, const std::string& part) {
  return std::count_if(p.instrs.begin(), p.instrs.end(), [&](const Instr& in) {
    return in.def->name == op && touched(p, in).find(part) != std::string::npos;
  });
}

size_t first_of(const Program& p, const std::string& op) {
  return static_cast<size_t>(std::find_if(p.instrs.begin(), p.instrs.end(),
                                          [&](const Instr& in) { return in.def->name == op; }) -
                             p.instrs.begin());
}

TEST(Files, StatesAreLoadedAsTheStepBegins) {
  Plan plan = compile(files(1, 4));
  size_t backward = first_of(plan.step(), "linear_dx");
  int64_t early = 0, all = 0;
  for (size_t i = 0; i < plan.step().instrs.size(); ++i) {
    if (plan.step().instrs[i].def->name != "load") continue;
    ++all;
    early += i < backward;
  }
  EXPECT_GE(all, 3 * kLayers);
  EXPECT_GE(early, 3 * 3) << "master and moments of three layers";
  EXPECT_LT(early, all) << "the ring holds four layers, not all";
}

TEST(Files, HostMemoryDependsOnTheNumberOfBuffers) {
  int64_t small = compile(files(1, 1)).step().arenas[1].transient;
  int64_t large = compile(files(1, 4)).step().arenas[1].transient;
  // Room for the bucket of small parameters, for norms and for whole blocks.
  constexpr int64_t kSlack = 64 << 10;
  EXPECT_GT(large, small);
  EXPECT_LE(small, 2 * kPart * 16 + kSlack);
  EXPECT_LE(large, 4 * kPart * 16 + kSlack);
}

TEST(Files, SavesContinueIntoTheNextRun) {
  Plan plan = compile(files(1, 4));
  const Program& p = plan.step();
  size_t carried = 0;
  for (const Instr& in : p.instrs) {
    for (const Wait& wait : in.waits) {
      if (!wait.run_before) continue;
      ++carried;
      EXPECT_EQ(p.instrs[wait.instr].queue, Queue::write);
    }
  }
  EXPECT_GT(carried, 0u);
  EXPECT_EQ(parse_program(p.print()).print(), p.print());
}

TEST(Files, AWaitForThePreviousRunIsNeeded) {
  Plan plan = compile(files(1, 4));
  int tried = 0;
  for (size_t i = 0; i < plan.step().instrs.size(); ++i) {
    for (size_t w = 0; w < plan.step().instrs[i].waits.size(); ++w) {
      if (!plan.step().instrs[i].waits[w].run_before) continue;
      Program broken = plan.step();
      broken.instrs[i].waits.erase(broken.instrs[i].waits.begin() + static_cast<std::ptrdiff_t>(w));
      ++tried;
      try {
        verify(broken, {});
        ADD_FAILURE() << "wait " << w << " of instruction " << i << " was dropped";
      } catch (const Error& e) {
        EXPECT_NE(std::string(e.what()).find("of the run before"), std::string::npos) << e.what();
      }
    }
  }
  EXPECT_GT(tried, 0);
}

TEST(Files, AccumulatorsStayInHostMemoryWhileThereIsRoom) {
  Plan room = compile(files(3, 8));
  EXPECT_EQ(count(room.step(), "load", ".grad"), 0);
  EXPECT_EQ(count(room.step(), "save", ".grad"), static_cast<int64_t>(room.zero.buckets.size()));
  // Host memory has room for the accumulators of one sub-group.
  Plan tight = compile(files(3, 1));
  EXPECT_GT(count(tight.step(), "load", ".grad"), 3 * (kLayers - 2));
  Config off = files(3, 8);
  off.zero.overlap_comm = false;
  EXPECT_GT(count(compile(off).step(), "load", ".grad"), 3 * kLayers);
}

TEST(Files, SubGroupsOfOneBucketOverlap) {
  Config c = files(1, 2);
  // Each layer has two sub-groups.
  c.zero.sub_group_size = 4096;
  Plan plan = compile(c);
  const Program& p = plan.step();
  // The second half of a layer is already being transferred when the first half is saved.
  size_t update = first_of(p, "adamw"), save = update;
  while (p.instrs[save].def->name != "save" ||
         touched(p, p.instrs[save]).find("h.0.master") == std::string::npos)
    ++save;
  int64_t ahead = 0;
  for (size_t i = 0; i < save; ++i) {
    const Instr& in = p.instrs[i];
    if (in.def->name == "load" && touched(p, in).find("h.0.master") != std::string::npos) ++ahead;
  }
  EXPECT_EQ(ahead, 2);
}

}  // namespace
}  // namespace ds
