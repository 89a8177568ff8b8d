#include "core/program/timeline.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "compile/pipeline.h"
#include "monitor/plan_picture.h"
#include "run/plan_column.h"
#include "support/models.h"

namespace ds {
namespace {

using test::make_config;
using test::make_mlp;

// Checks, at every stage and tier, that queues are in order, that waits are respected, and that the
// memory in use fits the plan. The last depends on the waits that protect reused memory, so a
// missing wait also shows here.
TEST(Timeline, KeepsQueuesWaitsAndArenas) {
  Graph graph = make_mlp(4, 64, 16);
  for (int stage = 0; stage <= 3; ++stage) {
    for (Tier tier : {Tier::device, Tier::host, Tier::nvme}) {
      Config config = make_config(stage, 3, 2);
      config.zero.param_persistence_threshold = 100;
      config.zero.optimizer_tier = config.zero.param_tier = tier;
      Program step = compile_plan(graph, config, 1, 2, Machine{}).step();
      Timeline timeline = predict_timeline(step, Machine{});
      double queues[kQueues] = {};
      for (size_t i = 0; i < step.instrs.size(); ++i) {
        double& queue = queues[static_cast<int>(step.instrs[i].queue)];
        EXPECT_GE(timeline.begin[i], queue);
        EXPECT_GE(timeline.end[i], timeline.begin[i]);
        queue = timeline.end[i];
        for (const Wait& wait : step.instrs[i].waits) {
          if (wait.run_before) continue;
          EXPECT_GE(timeline.begin[i], timeline.end[wait.instr]);
        }
      }
      EXPECT_EQ(timeline.seconds, *std::max_element(std::begin(queues), std::end(queues)));
      for (Tier of : {Tier::device, Tier::host, Tier::nvme}) {
        const ArenaSizes& arena = step.arenas[static_cast<int>(of)];
        auto bytes = bytes_over_time(step, timeline, of);
        ASSERT_FALSE(bytes.empty());
        EXPECT_EQ(bytes.back().second, arena.persistent) << "everything else is given back";
        for (const auto& [time, used] : bytes) {
          EXPECT_GE(used, arena.persistent);
          EXPECT_LE(used, arena.persistent + arena.transient)
              << "stage " << stage << " at " << time;
        }
      }
    }
  }
}

TEST(Timeline, ASlowerLinkMakesTheStepLonger) {
  Config config = make_config(3, 2, 2);
  Program step = compile_plan(make_mlp(4, 64, 16), config, 0, 2, Machine{}).step();
  Machine slow, fast;
  slow.link_bytes_per_second /= 1e6;
  fast.link_bytes_per_second *= 1e6;
  EXPECT_GT(predict_timeline(step, slow).seconds, 100 * predict_timeline(step, fast).seconds);
}

TEST(PlanPicture, HasAColumnForEachPlan) {
  std::vector<PlanColumn> columns;
  for (int stage = 0; stage <= 3; ++stage) {
    Config config = make_config(stage, 2, 2);
    columns.push_back(
        plan_column(compile_plan(make_mlp(4, 64, 16), config, 0, 2, Machine{}), config.zero));
    EXPECT_EQ(columns.back().title, "ZeRO-" + std::to_string(stage) + ", 2 ranks");
    EXPECT_FALSE(columns.back().lanes.empty());
  }
  columns[0].title = "a <b> & \"c\"";
  std::string svg = plan_picture(columns, plan_column_note());
  EXPECT_NE(svg.find("a &lt;b&gt; &amp; &quot;c&quot;"), svg.npos);
  for (const char* text :
       {"ZeRO-1, 2 ranks", "ZeRO-3, 2 ranks", "forward", "backward", "update", ">comp<"}) {
    EXPECT_NE(svg.find(text), svg.npos) << text;
  }
  EXPECT_EQ(svg, plan_picture(columns, plan_column_note()));
  EXPECT_NE(plan_picture({}, "").find("</svg>"), std::string::npos)
      << "nothing to show is no error";
}

}  // namespace
}  // namespace ds
