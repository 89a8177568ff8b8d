// Compares with learning rates that were recorded from DeepSpeed and from Hugging Face's Trainer
// (lr_schedules.json, trainer_schedules.json).
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>

#include "core/base/error.h"
#include "core/base/json.h"
#include "core/config/config.h"
#include "core/config/parse_config.h"
#include "core/config/refusals.h"
#include "optim/param_groups.h"
#include "optim/schedule.h"
#include "support/record.h"
#include "support/semantics.h"

namespace ds::test::recorded_schedules {
namespace {

Recording recorded() { return {semantics_path("lr_schedules.json"), {"runs", "resume", "errors"}}; }

// Returns a document with the recorded schedule and a parameter group for each of its rates.
Json document_of(const Record& item) {
  Json document = Json::parse("{\"train_batch_size\": 1}");
  const Json* type = item.find("optimizer");
  Json optimizer = Json::Object{}, groups = Json::Array{};
  const Json::Array& rates = item.at("group_lr").array();
  for (size_t g = 1; g < rates.size(); ++g) {
    Json group = Json::Object{};
    group.set("params", "g" + std::to_string(g));
    groups.array().push_back(group);
  }
  optimizer.set("type", type ? *type : Json("Adam"));
  optimizer.set("param_groups", groups);
  document.set("optimizer", optimizer);
  Json scheduler = Json::Object{};
  scheduler.set("type", item.at("scheduler"));
  scheduler.set("params", item.at("params"));
  document.set("scheduler", scheduler);
  return document;
}

Config scheduled(const Record& item) { return parse_config(document_of(item), 1); }

GroupScalars at_step(const Config& config, const Record& item, size_t group, int64_t step) {
  GroupScalars scalars = group_scalars(config.optimizer);
  scalars.lr = item.at("group_lr").array()[group].number();
  apply_schedule(config.scheduler, group, step, scalars);
  return scalars;
}

void expect_rate(double rate, double expected, const Tolerance& tolerance) {
  EXPECT_NEAR(rate, expected, tolerance.of(expected));
}

TEST(RecordedSchedules, RatesEqualThoseOfDeepSpeed) {
  const Recording all = recorded();
  const Tolerance tolerance = all.tolerance();
  for (const Record& run : all.list("runs")) {
    SCOPED_TRACE(run.at("scheduler").string() + " " + run.at("params").dump());
    const Config config = scheduled(run);
    const Json* betas = run.find("betas");
    ASSERT_EQ(run.at("lr").array().size(), run.at("group_lr").array().size());
    ASSERT_TRUE(!betas || betas->array().size() == run.at("lr").array().size());
    for (size_t g = 0; g < run.at("lr").array().size(); ++g) {
      const Json::Array& rates = run.at("lr").array()[g].array();
      ASSERT_TRUE(!betas || betas->array()[g].array().size() == rates.size());
      for (size_t k = 0; k < rates.size(); ++k) {
        SCOPED_TRACE(k);
        const GroupScalars scalars = at_step(config, run, g, static_cast<int64_t>(k));
        expect_rate(scalars.lr, rates[k].number(), tolerance);
        if (!betas) continue;
        const Json::Array& both = betas->array()[g].array()[k].array();
        expect_rate(scalars.beta1, both.at(0).number(), tolerance);
        expect_rate(scalars.beta2, both.at(1).number(), tolerance);
      }
    }
  }
}

// A resumed scheduler of DeepSpeed continues at its iteration and sets the rates in its next step.
TEST(RecordedSchedules, ResumesLikeDeepSpeed) {
  const Recording all = recorded();
  for (const Record& item : all.list("resume")) {
    SCOPED_TRACE(item.dump());
    const Config config = scheduled(item);
    const Record load = item.inside("load"), saved = item.inside("state_dict");
    const int64_t loaded = load.at("last_batch_iteration").integer();
    // Until that step, the optimizer has the rates that the constructor of the schedule set.
    const Json::Array &rates = item.at("lr_after_each_following_step").array(),
                      &at_once = item.at("lr_right_after_load").array();
    for (size_t g = 0; g < at_once.size(); ++g)
      expect_rate(at_step(config, item, g, 0).lr, at_once[g].number(), all.tolerance());
    for (size_t k = 0; k < rates.size(); ++k) {
      const auto iteration = loaded + 1 + static_cast<int64_t>(k);
      ASSERT_EQ(rates[k].array().size(), at_once.size());
      for (size_t g = 0; g < at_once.size(); ++g) {
        expect_rate(at_step(config, item, g, iteration + 1).lr, rates[k].array()[g].number(),
                    all.tolerance());
      }
    }
    EXPECT_EQ(saved.at("last_batch_iteration").integer(),
              loaded + static_cast<int64_t>(rates.size()));
  }
}

// The rates were recorded by tests/interop/trainer_schedules.py.
TEST(RecordedSchedules, RatesEqualThoseOfTransformers) {
  const Recording all(data_path("trainer_schedules.json"), {"runs"});
  const double rate = all.document().at("group_lr").number();
  const Tolerance tolerance{1e-12, 1e-15};
  std::map<std::string, int> types;
  for (const Record& run : all.list("runs")) {
    SCOPED_TRACE(run.at("scheduler").string() + " " + run.at("params").dump());
    ++types[run.at("scheduler").string()];
    Json document = Json::parse(fmt::format(
        R"({{"train_batch_size": 1, "optimizer": {{"type": "Muon", "params": {{"muon_lr": {}, "adam_lr": 0.03}}}}}})",
        rate));
    Json scheduler = Json::Object{};
    scheduler.set("type", run.at("scheduler"));
    scheduler.set("params", run.at("params"));
    document.set("scheduler", scheduler);
    const Config config = parse_config(document, 1);
    const Json::Array& rates = run.at("lr").array();
    for (size_t k = 0; k < rates.size(); ++k) {
      SCOPED_TRACE(k);
      GroupScalars scalars = group_scalars(config.optimizer);
      apply_schedule(config.scheduler, 0, static_cast<int64_t>(k), scalars);
      expect_rate(scalars.lr, rates[k].number(), tolerance);
      expect_rate(scalars.adam_lr, rates[k].number() / rate * 0.03, tolerance);
    }
  }
  EXPECT_EQ(types.size(), 4u);
  for (const auto& [type, count] : types) EXPECT_GE(count, 8) << type;
}

// Each refusal names a parameter of the schedule. libds may refuse more than DeepSpeed, because it
// limits every number.
TEST(RecordedSchedules, RefusalsEqualThoseOfDeepSpeed) {
  const Recording all = recorded();
  for (const Record& item : all.list("errors")) {
    SCOPED_TRACE(item.dump());
    ConfigRefusals refusals;
    parse_config(document_of(item), 1, refusals);
    ASSERT_LE(refusals.errors.size(), 1u);
    const std::string message = refusals.errors.empty() ? "" : refusals.errors[0].what();
    const bool refused = item.at("result").is_object();
    const std::string theirs = refused ? item.at("result").at("message").string() : "";
    // The message must name a parameter that DeepSpeed's message names, with or without the prefix
    // of the parameter's name.
    const Json::Object& params = item.at("params").object();
    const bool names = std::any_of(params.begin(), params.end(), [&](const auto& param) {
      const std::string path = "scheduler.params." + param.first;
      const bool about = message.starts_with(path + ":") || message.starts_with(path + "[");
      const bool same =
          theirs.find(param.first.substr(param.first.starts_with("warmup_m") ? 7 : 0)) !=
          theirs.npos;
      return about && (same || !refused);
    });
    if (item.at("result").is_string()) {
      EXPECT_EQ(item.at("result").string(), "accepted");
      EXPECT_TRUE(message.empty() || names) << message;
      continue;
    }
    const Record result = item.inside("result");
    result.at("error");
    result.told({"message"});
    EXPECT_TRUE(names) << message;
  }
}

}  // namespace
}  // namespace ds::test::recorded_schedules
