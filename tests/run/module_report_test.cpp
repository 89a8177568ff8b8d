// Tests wall_clock_breakdown and flops_profiler: the reports that a run prints and writes, and that
// they do not change its bits.
#include <gtest/gtest.h>

#include <sstream>
#include <string>
#include <vector>

#include "checkpoint/payload.h"
#include "core/base/log.h"
#include "engine/engine.h"
#include "io/file.h"
#include "monitor/keys.h"
#include "run/setup.h"
#include "support/models.h"
#include "support/ranks.h"
#include "support/same_bits.h"
#include "support/temp_folder.h"
#include "support/train_ranks.h"

namespace ds::test::module_report_test {
namespace {

// Returns the report lines of rank 0's engine.
std::vector<std::string> reports(const std::function<void(Config&)>& change, int steps,
                                 bool in_pieces = false, int world = 2) {
  std::vector<std::string> out;
  Point p;
  p.world = world;
  p.leaves = 2 * world;
  p.stage = 3;
  run_ranks(world, [&](Communicator& comm) {
    Config config = config_of(p);
    change(config);
    EngineOptions options;
    options.module_report = [&](const std::string& text) {
      EXPECT_EQ(comm.rank(), 0);
      out.push_back(text);
    };
    Engine engine(config, graph_of(p), comm, options);
    for (int s = 0; s < steps; ++s)
      in_pieces ? train_step_in_pieces(p, engine, s, [] {}) : train_step(p, engine, s);
  });
  return out;
}

double number_behind(const std::string& text, const std::string& words) {
  const size_t at = text.find(words);
  EXPECT_NE(at, text.npos) << words << " in\n" << text;
  return at == text.npos ? 0 : std::stod(text.substr(at + words.size()));
}

TEST(ModuleReport, ABreakdownIsPrintedEveryStepsPerPrintSteps) {
  for (bool in_pieces : {false, true}) {
    std::vector<std::string> found = reports(
        [](Config& c) {
          c.get<MonitorKeys>().wall_clock_breakdown = true;
          c.get<MonitorKeys>().steps_per_print = 3;
        },
        7, in_pieces);
    ASSERT_EQ(found.size(), 2u);
    EXPECT_NE(found[0].find("after step 3, mean of 3 steps"), std::string::npos) << found[0];
    EXPECT_NE(found[1].find("after step 6, mean of 3 steps"), std::string::npos) << found[1];
    for (const char* module : {"(model)", "attn", "mlp", "ln_1", "wte"})
      EXPECT_NE(found[1].find(module), std::string::npos) << module << " in\n" << found[1];
    const std::string& text = found[1];
    const double step = number_behind(text, "ms: step "),
                 forward = number_behind(text, "computing forward "),
                 backward = number_behind(text, ", backward "),
                 update = number_behind(text, ", update "),
                 moves = number_behind(text, "communication and copies ");
    for (double part : {forward, backward, update, moves}) EXPECT_GT(part, 0) << text;
    EXPECT_LE(forward + backward + update + moves, step * 1.001) << text;
    // The line of the model is the sum over everything that belongs to a module.
    std::istringstream model(text.substr(text.find("(model)") + 7));
    double of_forward = 0, of_backward = 0;
    model >> of_forward >> of_backward;
    EXPECT_GT(of_forward, forward * 0.5) << text;
    EXPECT_LE(of_forward, forward * 1.001) << text;
    EXPECT_LE(of_backward, backward * 1.001) << text;
  }
}

TEST(ModuleReport, AFlopsProfileIsPrintedAtItsStep) {
  auto profile = [](bool detailed) {
    return reports(
        [&](Config& c) {
          c.get<MonitorKeys>().flops_profiler.enabled = true;
          c.get<MonitorKeys>().flops_profiler.profile_step = 2;
          c.get<MonitorKeys>().flops_profiler.top_modules = 2;
          c.get<MonitorKeys>().flops_profiler.detailed = detailed;
        },
        4);
  };
  std::vector<std::string> found = profile(true), brief = profile(false);
  ASSERT_EQ(found.size(), 1u);
  ASSERT_EQ(brief.size(), 1u);
  EXPECT_NE(found[0].find("at step 2"), std::string::npos) << found[0];
  EXPECT_GT(number_behind(found[0], "forward latency"), 0);
  EXPECT_NE(found[0].find("c_"), 0u);
  EXPECT_GT(found[0].size(), brief[0].size());
  EXPECT_EQ(brief[0].find("modules: parameters, share"), std::string::npos);
}

TEST(ModuleReport, AnOutputFileHasTheProfile) {
  TempFolder folder;
  const std::string path = folder / "flops.txt";
  EXPECT_TRUE(reports(
                  [&](Config& c) {
                    c.get<MonitorKeys>().flops_profiler.enabled = true;
                    c.get<MonitorKeys>().flops_profiler.output_file = path;
                  },
                  2)
                  .empty());
  EXPECT_NE(read_file(path).find("flops profiler at step 1"), std::string::npos);
}

// An engine without a callback writes the report to the log, and a file that cannot be written is a
// warning.
TEST(ModuleReport, WithoutACallbackTheLogHasTheReport) {
  std::string lines;
  set_log_sink([&](LogLevel level, std::string_view line) {
    lines += (level == LogLevel::warning ? "warning " : "info ") + std::string(line) + "\n";
  });
  Point p;
  p.world = 1;
  auto comm = create_communicator("self", {});
  Config config = config_of(p);
  config.get<MonitorKeys>().wall_clock_breakdown = true;
  config.get<MonitorKeys>().steps_per_print = 1;
  config.get<MonitorKeys>().flops_profiler.enabled = true;
  config.get<MonitorKeys>().flops_profiler.profile_step = 2;
  config.get<MonitorKeys>().flops_profiler.output_file = "/nowhere/flops.txt";
  Engine engine(config, graph_of(p), *comm, {});
  for (int s = 0; s < 3; ++s) train_step(p, engine, s);
  flush_log();
  set_log_sink({});
  EXPECT_NE(lines.find("info wall_clock_breakdown after step 1"), std::string::npos) << lines;
  const size_t told =
      lines.find("warning flops_profiler.output_file: '/nowhere/flops.txt' cannot be written");
  ASSERT_NE(told, std::string::npos) << lines;
  EXPECT_GT(lines.find("flops profiler at step 2"), told) << "before the first step";
  EXPECT_NE(lines.find("flops profiler at step 2"), std::string::npos) << lines;
}

TEST(ModuleReport, BitsDoNotChange) {
  auto hash = [](bool on) {
    std::string out;
    Point p;
    p.stage = 3;
    run_ranks(p.world, [&](Communicator& comm) {
      Config config = config_of(p);
      config.get<MonitorKeys>().wall_clock_breakdown =
          config.get<MonitorKeys>().flops_profiler.enabled = on;
      config.get<MonitorKeys>().steps_per_print = 1;
      EngineOptions options;
      options.module_report = [](const std::string&) {};
      Engine engine(config, graph_of(p), comm, options);
      for (int s = 0; s < 3; ++s) train_step(p, engine, s);
      std::string mine = hash_of_states(engine);
      if (comm.rank() == 0) out = mine;
    });
    return out;
  };
  EXPECT_EQ(hash(true), hash(false));
}

}  // namespace
}  // namespace ds::test::module_report_test
