// Tests the configuration keys of monitors and reports.
#include <gtest/gtest.h>

#include <string>

#include "core/base/error.h"
#include "core/config/config.h"
#include "core/config/parse_config.h"
#include "monitor/keys.h"

namespace ds::monitor_keys_test {
namespace {

Config with(const std::string& members) {
  return parse_config(Json::parse("{\"train_batch_size\": 1, " + members + "}"), 1);
}

std::string refusal_with(const std::string& members) {
  try {
    with(members);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

// For every monitor, job_name is a folder below output_path.
TEST(MonitorKeys, AJobNameMayNotLeaveItsFolder) {
  for (const char* section : {"tensorboard", "csv_monitor", "jsonl_monitor"}) {
    auto named = [&](const std::string& name) {
      return std::string("\"") + section +
             "\": {\"enabled\": true, \"output_path\": \"logs\", \"job_name\": \"" + name + "\"}";
    };
    for (const char* name : {"../../x", "..", "a/../../b", "a/..", "/tmp/x", "../x"}) {
      EXPECT_NE(refusal_with(named(name))
                    .find(std::string(section) + ".job_name: must name a folder below"),
                std::string::npos)
          << name << ": " << refusal_with(named(name));
      EXPECT_NE(refusal_with(named(name)).find(name), std::string::npos);
    }
    for (const char* name : {"x", "a/b", "..a", "a..", ".", "", "my job"})
      EXPECT_EQ(refusal_with(named(name)), "") << name;
  }
}

TEST(MonitorKeys, KeysOfModuleReportsAreRead) {
  EXPECT_FALSE(with("\"steps_per_print\": 5").get<MonitorKeys>().wall_clock_breakdown);
  EXPECT_TRUE(with("\"wall_clock_breakdown\": true").get<MonitorKeys>().wall_clock_breakdown);
  const Config c = with(
      R"("flops_profiler": {"enabled": true, "profile_step": 7, "module_depth": 2, "top_modules": 3,
         "detailed": false, "output_file": "flops.txt", "recompute_fwd_factor": 1.0})");
  EXPECT_TRUE(c.get<MonitorKeys>().flops_profiler.enabled &&
              !c.get<MonitorKeys>().flops_profiler.detailed);
  EXPECT_EQ(c.get<MonitorKeys>().flops_profiler.profile_step, 7);
  EXPECT_EQ(c.get<MonitorKeys>().flops_profiler.module_depth, 2);
  EXPECT_EQ(c.get<MonitorKeys>().flops_profiler.top_modules, 3);
  EXPECT_EQ(c.get<MonitorKeys>().flops_profiler.output_file, "flops.txt");
  EXPECT_EQ(c.get<MonitorKeys>().flops_profiler.recompute_fwd_factor, 1);
  const Json values = c.effective().at("config");
  EXPECT_EQ(parse_config(values, 1).effective().at("config").dump(), values.dump());
  EXPECT_FALSE(c.without_effect.size());
  EXPECT_NE(refusal_with(R"("flops_profiler": {"enabled": true, "profile_step": 0})"), "");
  EXPECT_NE(refusal_with(R"("flops_profiler": {"enabled": true, "module_depth": -2})"), "");
  EXPECT_NE(refusal_with(R"("flops_profiler": {"step": 1})").find("flops_profiler.step"),
            std::string::npos);
}

TEST(MonitorKeys, OtherServicesAreLeftToThePythonPackage) {
  for (const char* section : {"wandb", "comet"}) {
    const std::string on = std::string("\"") + section + "\": {\"enabled\": true}";
    EXPECT_NE(refusal_with(on).find("libds.Monitors"), std::string::npos) << refusal_with(on);
    EXPECT_EQ(
        refusal_with(std::string("\"") + section + "\": {\"enabled\": false, \"project\": \"p\"}"),
        "");
  }
}

}  // namespace
}  // namespace ds::monitor_keys_test
