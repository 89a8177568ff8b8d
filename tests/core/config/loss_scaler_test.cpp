// Compares with every sequence of scales that was recorded from DeepSpeed's three scalers in
// loss_scaler.json.
#include "core/config/loss_scaler.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "core/base/json.h"
#include "core/config/parse_config.h"
#include "support/record.h"
#include "support/semantics.h"

namespace ds {
namespace {

test::Recording recorded() {
  return {test::semantics_path("loss_scaler.json"), {"runs", "stage0"}};
}

// A scaler, whose first scale need not be a power of two, and its configuration.
struct Rule {
  LossScaleConfig config;
  LossScaler scaler;
};

Rule rule_of(double initial, const Json& window, const Json& minimum, int64_t hysteresis,
             bool consecutive) {
  LossScaleConfig config;
  config.window = window.integer();
  config.min_loss_scale = minimum.number();
  config.hysteresis = hysteresis;
  config.consecutive_hysteresis = consecutive;
  LossScaler scaler = first_scaler(config);
  scaler.scale = initial;
  return {config, scaler};
}

// Follows DeepSpeed's dynamic scaler step by step, until an overflow at the minimum scale ends the
// run.
TEST(LossScaler, MatchesTheScalesOfZeRO) {
  const test::Recording all = recorded();
  for (const test::Record& run : all.list("runs")) {
    SCOPED_TRACE(run.dump());
    const test::Record params = run.inside("params");
    Rule rule = rule_of(params.at("init_scale").number(), params.at("scale_window"),
                        params.at("min_scale"), params.at("delayed_shift").integer(),
                        params.at("consecutive_hysteresis").boolean());
    const Json* raises = params.find("raise_error_at_min_scale");
    const bool may_end = !raises || raises->boolean();
    const std::string& pattern = run.at("overflow").string();
    const Json::Array &scales = run.at("scale").array(), &left = run.at("hysteresis").array(),
                      &last = run.at("last_overflow_iter").array();
    ASSERT_EQ(pattern.find_first_not_of(".x"), pattern.npos);
    size_t end = pattern.size();
    for (size_t k = 0; k < pattern.size(); ++k) {
      const bool overflow = pattern[k] == 'x';
      if (overflow && may_end && at_floor(rule.config, rule.scaler)) {
        end = k;
        break;
      }
      rule.scaler = next_scaler(rule.config, rule.scaler, overflow);
      ASSERT_LT(k, scales.size());
      EXPECT_EQ(rule.scaler.scale, scales[k].number()) << " step " << k;
      EXPECT_EQ(rule.scaler.hysteresis, left.at(k).integer()) << " step " << k;
      EXPECT_EQ(rule.scaler.last_overflow, last.at(k).integer()) << " step " << k;
    }
    EXPECT_EQ(scales.size(), end);
    EXPECT_EQ(left.size(), end);
    EXPECT_EQ(last.size(), end);
    EXPECT_EQ(rule.scaler.steps, run.at("cur_iter").integer());
    EXPECT_EQ(end < pattern.size(), !run.at("raised").is_null());
    if (run.at("raised").is_null()) continue;
    const test::Record raised = run.inside("raised");
    raised.told({"error", "message"});
    EXPECT_EQ(static_cast<int64_t>(end), raised.at("at").integer());
  }
}

// Without ZeRO, DeepSpeed has two more scalers. Both equal this scaler with a hysteresis of 1.
TEST(LossScaler, MatchesTheScalesOfStageZero) {
  const test::Recording all = recorded();
  for (const test::Record& run : all.list("stage0")) {
    SCOPED_TRACE(run.dump());
    const std::string& of = run.at("optimizer").string();
    EXPECT_TRUE(of == "fused" || of == "unfused");
    // Without parameters, these scalers use their own defaults.
    if (run.at("params").is_null()) {
      EXPECT_EQ(run.at("initial_scale").number(), of == "fused" ? 4294967296.0 : 65536.0);
      EXPECT_EQ(run.at("window").number(), 1000);
      EXPECT_EQ(run.at("min_scale").number(), of == "fused" ? 1 : 0.25);
    } else {
      const test::Record params = run.inside("params");
      EXPECT_EQ(params.at("init_scale").number(), run.at("initial_scale").number());
      EXPECT_EQ(params.at("scale_window").number(), run.at("window").number());
      EXPECT_EQ(params.at("min_scale").number(), run.at("min_scale").number());
    }
    Rule rule =
        rule_of(run.at("initial_scale").number(), run.at("window"), run.at("min_scale"), 1, false);
    const std::string& pattern = run.at("overflow").string();
    ASSERT_EQ(pattern.find_first_not_of(".x"), pattern.npos);
    ASSERT_EQ(run.at("scale").array().size(), pattern.size());
    for (size_t k = 0; k < pattern.size(); ++k) {
      rule.scaler = next_scaler(rule.config, rule.scaler, pattern[k] == 'x');
      EXPECT_EQ(rule.scaler.scale, run.at("scale").array()[k].number()) << " step " << k;
    }
    EXPECT_EQ(rule.scaler.steps, run.at("cur_iter").integer());
    EXPECT_EQ(rule.scaler.last_overflow, run.at("last_overflow_iter").integer());
  }
}

// As in DeepSpeed, the first overflow raises the scale to the minimum, and the next overflow ends
// the run.
TEST(LossScaler, AScaleBelowTheMinimumIsRaisedToIt) {
  LossScaleConfig config;
  config.initial_scale_power = 1;
  config.min_loss_scale = 3;
  config.hysteresis = 1;
  LossScaler scaler = first_scaler(config);
  EXPECT_FALSE(at_floor(config, scaler));
  scaler = next_scaler(config, scaler, true);
  EXPECT_EQ(scaler.scale, 3);
  EXPECT_TRUE(at_floor(config, scaler));
}

TEST(LossScaler, AStaticScaleIsConstant) {
  LossScaleConfig config;
  config.loss_scale = 128;
  LossScaler scaler = first_scaler(config);
  for (bool overflow : {false, true, true, false}) {
    EXPECT_EQ(scaler.scale, 128);
    EXPECT_FALSE(at_floor(config, scaler));
    scaler = next_scaler(config, scaler, overflow);
  }
  EXPECT_EQ(scaler.steps, 4);
}

TEST(LossScaler, BeginsAtAPowerOfTwo) {
  LossScaleConfig config;
  EXPECT_EQ(first_scaler(config).scale, 65536);
  config.initial_scale_power = 32;
  EXPECT_EQ(first_scaler(config).scale, 4294967296.0);
}

// Compares with the scales of torch.amp.GradScaler("cpu", init_scale=16, growth_interval=3) in
// torch 2.15, with infinite gradients in the steps marked 1.
TEST(LossScaler, MatchesTheScalesOfTorch) {
  const std::string overflows = "00000001001100001000";
  const std::vector<double> scales{16, 16, 16, 32, 32, 32, 64, 64, 32, 32, 32,
                                   16, 8,  8,  8,  16, 16, 8,  8,  8,  16};
  LossScaleConfig config =
      parse_config(Json::parse(R"({"torch_autocast": {"enabled": true, "dtype": "float16"}})"), 1)
          .loss_scale;
  config.initial_scale_power = 4;
  config.window = 3;
  LossScaler scaler = first_scaler(config);
  for (size_t step = 0; step < overflows.size(); ++step) {
    EXPECT_EQ(scaler.scale, scales[step]) << step;
    scaler = next_scaler(config, scaler, overflows[step] == '1');
  }
  EXPECT_EQ(scaler.scale, scales.back());
}

}  // namespace
}  // namespace ds
