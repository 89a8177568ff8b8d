#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <functional>
#include <map>
#include <set>
#include <string>

#include "compile/pipeline.h"
#include "compile/search.h"
#include "core/base/error.h"
#include "passes/hoist.h"
#include "passes/offsets.h"
#include "support/errors.h"
#include "support/models.h"

namespace ds {
namespace {

using test::make_config;
using test::make_mlp;

Config eight_layers() {
  Config c = make_config(3, 2, 2);
  c.zero.param_persistence_threshold = 1000;
  c.zero.max_reuse_distance = 0;
  c.zero.max_live_parameters = 3 * 64 * 64;
  return c;
}

TEST(Plan, EveryStageAndTierVerifies) {
  Graph g = make_mlp(3, 64, 16);
  for (int stage = 0; stage <= 3; ++stage) {
    for (Tier tier : {Tier::device, Tier::host, Tier::nvme}) {
      for (bool tree : {false, true}) {
        for (bool emulate : {false, true}) {
          Config c = make_config(stage, 3, 2);
          c.zero.param_persistence_threshold = 100;
          c.zero.optimizer_tier = c.zero.param_tier = tier;
          c.reproducible = tree;
          c.emulate_tiers = emulate;
          c.compute = DS_DTYPE_BF16;
          Plan plan = compile_plan(g, c, 1, 2, Machine{});
          std::string text = plan.step().print();
          EXPECT_EQ(parse_program(text).print(), text);
        }
      }
    }
  }
}

// Bookkeeping instructions run where their operands are. Scalars that the host decides are copied
// to the device and back once. Initial parameters are drawn on the host, no matter which device
// trains.
TEST(Plan, BookkeepingRunsWhereItsOperandsAre) {
  for (Tier tier : {Tier::device, Tier::host, Tier::nvme}) {
    for (bool emulate : {false, true}) {
      Config c = make_config(2, 2, 2);
      c.zero.optimizer_tier = tier;
      c.emulate_tiers = emulate;
      c.zero.reduce_bucket_size = 5000;
      Plan plan = compile_plan(make_mlp(3, 64, 16), c, 0, 2, Machine{});
      std::map<std::string, std::set<Queue>> queues;
      int moved = 0, updates = 0;
      for (const Program* p : {&plan.program(ProgramKind::init), &plan.step()}) {
        EXPECT_EQ(p->separate, emulate);
        for (const Instr& in : p->instrs) {
          queues[in.def->name].insert(in.queue);
          bool scalars = p->buffers[in.operands[0].buffer].holds == Holds::scalars;
          moved += p == &plan.step() && in.def->kind == Kind::copy && scalars;
          updates += in.def->kind == Kind::update;
        }
      }
      bool away = tier != Tier::device;
      EXPECT_EQ(queues["init_param"], std::set<Queue>{Queue::host});
      EXPECT_EQ(queues["losses"], std::set<Queue>{Queue::compute});
      EXPECT_EQ(queues["clip"], std::set<Queue>{away ? Queue::host : Queue::compute});
      EXPECT_EQ(moved, away && emulate ? 2 : 0);
      EXPECT_GT(updates, 1);
    }
  }
}

TEST(Plan, AtMostThreeLayersAreLive) {
  Plan plan = compile_plan(make_mlp(8, 64, 16), eight_layers(), 0, 2, Machine{});
  std::vector<int64_t> live = live_parameters(plan.step());
  int64_t most = *std::max_element(live.begin(), live.end());
  EXPECT_LE(most, 3 * 64 * 64);
  EXPECT_GE(most, 2 * 64 * 64) << "nothing is prefetched";
  EXPECT_LE(most, 8 * 64 * 64 / 2);
}

// Returns the index of the (n+1)-th instruction for which the predicate is true, or -1.
int find(const Program& p, int n, const std::function<bool(const Instr&)>& is) {
  for (size_t i = 0; i < p.instrs.size(); ++i) {
    if (is(p.instrs[i]) && n-- == 0) return static_cast<int>(i);
  }
  return -1;
}

TEST(Plan, TheNextLayerIsGatheredBeforeTheCurrentOneComputes) {
  Plan plan = compile_plan(make_mlp(8, 64, 16), eight_layers(), 0, 2, Machine{});
  auto gather_of = [&](const std::string& layer) {
    return find(plan.step(), 0, [&](const Instr& in) {
      return in.def->name == "all_gather" && in.operands.size() == 2 &&
             plan.step().buffers[in.operands[1].buffer].name.starts_with(layer);
    });
  };
  for (int l = 1; l < 7; ++l) {
    int compute = find(plan.step(), l, [](const Instr& in) { return in.def->name == "linear"; });
    int next = gather_of("h." + std::to_string(l + 1) + ".full");
    ASSERT_GE(next, 0);
    EXPECT_LT(next, compute) << "layer " << l;
    bool last = false;
    for (const Operand& o : plan.step().instrs[compute].operands) last = last || o.last;
    EXPECT_TRUE(last) << "the last use of layer " << l << " in forward frees it";
  }
}

// Both parts of a gather over nodes run ahead, each on its own level.
TEST(Plan, BothPartsOfAGatherOverNodesArePrefetched) {
  Config c = eight_layers();
  c.nodes = 2;
  c.zero.max_live_parameters = 4 * 64 * 64;
  Plan plan = compile_plan(make_mlp(8, 64, 16), c, 0, 4, Machine{});
  auto gather_into = [&](const std::string& name) {
    return find(plan.step(), 0, [&](const Instr& in) {
      return in.def->name == "all_gather" &&
             plan.step().buffers[in.operands[1].buffer].name == name;
    });
  };
  for (int l = 1; l < 7; ++l) {
    int compute = find(plan.step(), l, [](const Instr& in) { return in.def->name == "linear"; });
    std::string next = "h." + std::to_string(l + 1);
    int outer = gather_into(next + ".part1"), inner = gather_into(next + ".full");
    ASSERT_GE(outer, 0);
    EXPECT_LT(outer, inner);
    EXPECT_LT(inner, compute) << "layer " << l;
    EXPECT_EQ(plan.step().instrs[outer].group.stride, 2);
    EXPECT_EQ(plan.step().instrs[inner].group.stride, 1);
  }
}

TEST(Plan, ShardGroupsThatDoNotFitAreRefused) {
  struct Refused {
    int stage, world;
    int64_t nodes, mics, hpz;
    std::vector<std::string> parts;
  };
  const Refused cases[] = {
      {3, 4, 3, -1, 1, {"topology.nodes", "3 and 4"}},
      {3, 8, 0, 16, 1, {"mics_shard_size", "16 and 8"}},
      {3, 6, 0, 3, 1, {"mics_shard_size", "power of two", "got 3"}},
      {2, 8, 0, 2, 1, {"mics_shard_size 2", "stage 3, got 2"}},
      {3, 8, 0, -1, 5, {"zero_hpz_partition_size", "5 and 8"}},
      {1, 8, 0, -1, 2, {"zero_hpz_partition_size 2", "stage 3, got 1"}},
  };
  for (const Refused& r : cases) {
    Config c = make_config(r.stage, 1, r.world);
    c.nodes = r.nodes;
    c.zero.mics_shard_size = r.mics;
    c.zero.hpz_partition_size = r.hpz;
    std::string message = test::message_of(
        [&] { compile_plan(make_mlp(2, 64, 16), c, 0, r.world, Machine{}); }, DS_ERROR_CONFIG);
    test::expect_names(message, r.parts);
  }
}

// Nodes of three ranks would change the order of additions, so they do not form a level; nor does a
// node that contains all ranks.
TEST(Plan, OnlyNodesOfAPowerOfTwoAreLevels) {
  Config c = make_config(3, 1, 6);
  c.zero.param_persistence_threshold = 100;
  Plan flat = compile_plan(make_mlp(2, 64, 16), c, 0, 6, Machine{});
  c.nodes = 2;
  Plan plan = compile_plan(make_mlp(2, 64, 16), c, 0, 6, Machine{});
  EXPECT_EQ(plan.step().print(), flat.step().print());
  c.nodes = 3;
  plan = compile_plan(make_mlp(2, 64, 16), c, 0, 6, Machine{});
  EXPECT_NE(plan.step().print(), flat.step().print());
  EXPECT_EQ(plan.zero.classes.front().levels.group(0).name(), "2x1");
}

TEST(Plan, ReuseDistanceKeepsTheLastLayer) {
  Config c = eight_layers();
  auto gathers = [&](int64_t distance) {
    c.zero.max_reuse_distance = distance;
    Plan plan = compile_plan(make_mlp(8, 64, 16), c, 0, 2, Machine{});
    return std::count_if(plan.step().instrs.begin(), plan.step().instrs.end(), [](const Instr& in) {
      return in.def->name == "all_gather" && in.bucket.exists();
    });
  };
  EXPECT_LT(gathers(64 * 64), gathers(0));
}

TEST(Plan, ALiveLimitBelowOneLayerKeepsOneLayerAlone) {
  Config c = eight_layers();
  auto arena = [&](int64_t limit) {
    c.zero.max_live_parameters = limit;
    return compile_plan(make_mlp(8, 64, 16), c, 0, 2, Machine{}).step().arenas[0].transient;
  };
  // This is exactly the memory that one layer needs.
  int64_t one = arena(64 * 64);
  constexpr int64_t layer = 64 * 64 * 4;
  EXPECT_LT(arena(4000), one + layer / 2);
  EXPECT_LT(arena(0), one + layer / 2);
  EXPECT_GT(arena(1'000'000), one + layer);
}

TEST(Plan, HashesAgreeOverRanksAndDifferOverConfigs) {
  Graph g = make_mlp(3, 64, 16);
  Config c = eight_layers();
  EXPECT_EQ(compile_plan(g, c, 0, 2, Machine{}).hash, compile_plan(g, c, 1, 2, Machine{}).hash);
  Config other = c;
  other.optimizer.lr = 3e-3;
  EXPECT_NE(compile_plan(g, c, 0, 2, Machine{}).hash, compile_plan(g, other, 0, 2, Machine{}).hash);
}

// The hash depends on the choices of the compilation, even if they do not change the collectives.
TEST(Plan, HashesDifferOverChoices) {
  const Config c = eight_layers();
  std::set<std::string> hashes;
  const size_t choices = choices_by_memory(c).size();
  PlanPrograms programs;
  for (; programs.first_choice < choices; ++programs.first_choice)
    hashes.insert(compile_plan(make_mlp(3, 64, 16), c, 0, 1, Machine{}, true, programs).hash);
  EXPECT_EQ(hashes.size(), choices);
}

// A plan may have more ranks than a communicator supports. Each rank may own as little as one
// granule of a bucket.
TEST(Plan, CompilesForThousandsOfRanks) {
  for (int stage : {0, 3}) {
    Config config = make_config(stage, 20, 4096);
    auto begin = std::chrono::steady_clock::now();
    Plan plan = compile_plan(make_mlp(4, 64, 16), config, 4095, 4096, Machine{});
    std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin;
    EXPECT_LT(taken.count(), 1.0);
    EXPECT_EQ(plan.step().mesh, Mesh(4096));
    for (const Bucket& b : plan.zero.layout.buckets) EXPECT_EQ(b.numel % (4096 * kGranule), 0);
  }
}

TEST(Plan, ATooSmallBudgetIsRefusedWithATable) {
  Config c = eight_layers();
  c.memory_budget.device = 1000;
  try {
    compile_plan(make_mlp(8, 64, 16), c, 0, 2, Machine{});
    FAIL() << "a budget of 1000 bytes was accepted";
  } catch (const Error& e) {
    EXPECT_EQ(e.status(), DS_ERROR_OUT_OF_MEMORY);
    EXPECT_NE(std::string(e.what()).find("optimizer states"), std::string::npos) << e.what();
  }
}

TEST(Plan, MemoryIsNearItsLowerBound) {
  Plan plan = compile_plan(make_mlp(8, 64, 64), eight_layers(), 0, 2, Machine{});
  int64_t bound = transient_lower_bound(plan.step(), Tier::device);
  EXPECT_LE(plan.step().arenas[0].transient, bound * 13 / 10);
}

// Returns a configuration whose states are in host memory, with several buckets.
Config states_on_host() {
  Config c = make_config(0, 3, 1);
  c.zero.optimizer_tier = Tier::host;
  c.zero.reduce_bucket_size = c.zero.sub_group_size = 5000;
  c.emulate_tiers = true;
  return c;
}

// Gradients on their way to the host, and parameters on their way back, alternate between two
// memory ranges, so that a transfer need not wait until the previous buffer has been used. This
// needs memory for at most one more buffer of each kind.
TEST(Plan, TheNextTransferUsesASeparateRange) {
  Plan plan = compile_plan(make_mlp(8, 64, 16), states_on_host(), 0, 1, Machine{});
  std::map<std::pair<std::string, Tier>, const Buffer*> before;
  std::map<std::string, int> compared;
  int64_t largest = 0;
  SegmentId segment;
  for (const Instr& in : plan.step().instrs) {
    if (in.segment != segment) before.clear();
    segment = in.segment;
    if (in.def->kind != Kind::copy) continue;
    for (const Operand& o : in.operands) {
      const Buffer& moved = plan.step().buffers[o.buffer];
      if (moved.residency != Residency::transient || moved.holds == Holds::scalars) continue;
      largest = std::max(largest, moved.bytes());
      const Buffer*& last = before[{in.def->name, moved.tier}];
      if (last != nullptr) {
        EXPECT_TRUE(moved.offset + moved.bytes() <= last->offset ||
                    last->offset + last->bytes() <= moved.offset)
            << in.def->name << " of " << moved.name << " after " << last->name;
        ++compared[in.def->name];
      }
      last = &moved;
    }
  }
  EXPECT_GT(compared["store"], 10);
  EXPECT_GT(compared["fetch"], 3);
  for (Tier tier : {Tier::device, Tier::host}) {
    EXPECT_LE(plan.step().arenas[static_cast<int>(tier)].transient,
              transient_lower_bound(plan.step(), tier) * 13 / 10 + 2 * largest)
        << tier_name(tier);
  }
}

// If there is too little memory for the second ranges, transfers still start early. If there is too
// little memory for that as well, transfers run one at a time.
TEST(Plan, ABudgetGivesUpRangesBeforePrefetch) {
  const Graph g = make_mlp(8, 64, 16);
  Config c = states_on_host();
  const Plan roomy = compile_plan(g, c, 0, 1, Machine{});
  EXPECT_TRUE(roomy.notes.empty());
  c.memory_budget.host = roomy.memory.total(Tier::host) - 1;
  const Plan tight = compile_plan(g, c, 0, 1, Machine{});
  ASSERT_EQ(tight.notes.size(), 1u);
  EXPECT_EQ(
      tight.notes[0],
      "freed memory is reused at once to fit memory_budget, so transfers wait for earlier ones");
  EXPECT_LT(tight.memory.total(Tier::host), roomy.memory.total(Tier::host));
}

TEST(Plan, EveryWaitIsNeeded) {
  Config c = eight_layers();
  c.zero.optimizer_tier = c.zero.param_tier = Tier::nvme;
  c.emulate_tiers = true;
  Plan plan = compile_plan(make_mlp(2, 64, 16), c, 0, 2, Machine{});
  int waits = 0, caught = 0;
  for (size_t i = 0; i < plan.step().instrs.size(); ++i) {
    for (size_t w = 0; w < plan.step().instrs[i].waits.size(); ++w) {
      Program broken = plan.step();
      broken.instrs[i].waits.erase(broken.instrs[i].waits.begin() + static_cast<std::ptrdiff_t>(w));
      ++waits;
      try {
        verify(broken, {});
      } catch (const Error&) {
        ++caught;
      }
    }
  }
  EXPECT_GT(waits, 50);
  EXPECT_EQ(caught, waits);
}

}  // namespace
}  // namespace ds
